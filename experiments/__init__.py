"""One short script a result."""

"""From Debian packages to the ladder that ships: corpus, training, shipping."""

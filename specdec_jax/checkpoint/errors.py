"""The one error of this package."""


class CheckpointError(ValueError):
  """A checkpoint that is missing, unfinished, or not of the expected model."""

"""whichrank: which rank broke the distributed training job, why, and what to do."""

__version__ = "0.1.0"

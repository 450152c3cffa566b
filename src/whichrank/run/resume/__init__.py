"""Restart a job: checkpoints, schedulers, decisions."""

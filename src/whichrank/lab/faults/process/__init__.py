"""Crashes of one process, and healthy jobs."""

"""Verbs for a job that is about to start."""

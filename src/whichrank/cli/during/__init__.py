"""Verbs for a job that runs."""

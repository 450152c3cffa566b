"""Verbs for what a job left behind."""

"""Faults of a GPU."""

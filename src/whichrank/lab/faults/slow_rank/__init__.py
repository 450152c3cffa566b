"""Ranks that stall or lag."""

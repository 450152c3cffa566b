"""Ranks have different numbers of batches."""

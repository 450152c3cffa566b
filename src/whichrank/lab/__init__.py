"""Faults on purpose: a real job, broken in a known way, and the verdict beside the truth."""

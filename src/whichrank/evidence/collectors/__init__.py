"""Passive capture on a host or of a live process."""

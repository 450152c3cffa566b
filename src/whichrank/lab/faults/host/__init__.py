"""Faults of the host: memory, disk, processes."""

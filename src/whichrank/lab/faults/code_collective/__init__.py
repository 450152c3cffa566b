"""Faults in the order of collectives."""

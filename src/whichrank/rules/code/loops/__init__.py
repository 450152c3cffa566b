"""Loops that ranks leave at different turns."""

"""Sends and receives that don't match or wait in a circle."""

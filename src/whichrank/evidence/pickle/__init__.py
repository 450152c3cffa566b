"""Pickles decoded without ever running them."""

"""Ranks pass different arguments to one collective."""

"""Ranks issue the same collectives in different orders."""

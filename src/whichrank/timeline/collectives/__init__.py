"""Collectives matched across ranks: who joined, who waits, where the order differs."""

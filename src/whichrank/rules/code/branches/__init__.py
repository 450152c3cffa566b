"""Branches that ranks take differently."""

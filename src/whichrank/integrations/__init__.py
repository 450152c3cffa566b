"""Thin adapters for trainers and other tools; each needs its tool, and nothing else of the package does."""

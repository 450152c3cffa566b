"""Thin adapters for trainers; each needs its trainer, and nothing else of the package does."""

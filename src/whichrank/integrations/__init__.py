"""Thin adapters for trainers and other tools; each needs its tool, and nothing else of the package does.

`marking` is what the adapters for trainers share, and what a loop of your own may use.
"""

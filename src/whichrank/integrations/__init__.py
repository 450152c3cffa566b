<<<<<<< HEAD
"""Thin adapters for trainers; each needs its trainer, and nothing else of the package does."""
=======
"""Thin adapters for trainers and other tools; each needs its tool, and nothing else of the package does."""
>>>>>>> main

"""Calls: which function is meant, what it does, and what comes back."""

"""What `compare` found, in each of its formats: `render(differences, looked)`."""

from __future__ import annotations


def level(suspicion: float) -> str:
    """A word for the number."""
    levels = ((0.9, "very suspicious"), (0.7, "suspicious"), (0.3, "possible"))
    return next((word for least, word in levels if suspicion >= least), "unlikely, or a consequence")


def ending(found: int, looked: list[str]) -> str:
    """What was looked at."""
    return f"{'Compared' if found else 'No difference'}: {'; '.join(looked)}."

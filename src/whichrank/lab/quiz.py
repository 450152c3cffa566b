"""Let the person answer before the verdict is shown."""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.facts.taxonomy import causes
from whichrank.lab.truth import Answer, Mark, Truth, mark


@dataclass(frozen=True, slots=True)
class Guess:
    """What the person said, and how good that is."""

    answer: Answer
    mark: Mark


def parse(ranks: str, cause: str, truth: Truth) -> Guess:
    """Ranks as `1, 3` or nothing for nobody; a cause by its slug or by words of it."""
    numbers = tuple(int(word) for word in ranks.replace(",", " ").split() if word.isdigit())
    slug = closest(cause)
    answer = Answer(slug, numbers)
    return Guess(answer, mark(truth, answer))


def closest(words: str) -> str | None:
    """The cause that is meant, or None."""
    from difflib import get_close_matches

    said = words.strip().lower().replace(" ", "-").replace("_", "-")
    known = list(causes())
    if said in known:
        return said
    near = get_close_matches(said, known, n=1, cutoff=0.5)
    return near[0] if near else None

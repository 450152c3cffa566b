"""What to do about a cause that several rules find: written once, for their findings and for their pages."""

from __future__ import annotations

from functools import cache

from whichrank.facts.tables import rows


def fix(cause: str) -> tuple[str, ...]:
    """The steps, the first one first."""
    return _table().get(cause, ())


@cache
def _table() -> dict[str, tuple[str, ...]]:
    steps: dict[str, tuple[str, ...]] = {}
    for row in rows("fixes.csv"):
        steps[row["cause"]] = (*steps.get(row["cause"], ()), row["fix"])
    return steps


def with_fix(page: str, cause: str) -> str:
    """A rule's page, with the fix of its cause where it has none of its own."""
    steps = fix(cause)
    if not steps or "\n## Fix\n" in page:
        return page
    return page.replace("\n## Limits\n", "\n## Fix\n" + "\n".join(steps) + "\n\n## Limits\n")

"""What a piece of training code shows without being run."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from whichrank.model.evidence import Ref

Kind = Literal["guarded", "between_barriers", "crossed", "by_data"]


class CodeClue(Struct, frozen=True):
    """A place where ranks part ways around a collective.

    guarded: a collective that only some ranks reach. between_barriers: work that one rank does while the others
    already wait in a barrier. crossed: branches of different ranks that issue the same operations in different orders.
    by_data: a collective under a condition on what this rank's own data is.
    """

    kind: Kind
    ref: Ref
    file: str
    line: int
    guard: str
    """The condition on the rank, or on its data."""
    calls: tuple[str, ...]
    """The operations in question, in order."""
    other_calls: tuple[str, ...] = ()
    """For crossed branches: what the other branch does."""

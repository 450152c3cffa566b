"""Numbers and names of results: NCCL, ibverbs, CUDA, the C library, signals and exit codes; and folklore."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from whichrank.facts.tables import rows


class Code(NamedTuple):
    """One result that a program may show as a number, a name or a sentence."""

    kind: str
    """nccl_result, ibv_status, cuda_error, errno, gai_error, signal or exit_code."""
    code: int
    name: str
    alias: str
    """Another library's name for it: the CUDA driver's, beside the runtime's."""
    words: str
    meaning: str
    cause: str
    fix: str
    source: str


class Lore(NamedTuple):
    """Something that is passed around and is wrong."""

    id: str
    words: str
    """Words by which it is found."""
    claim: str
    truth: str
    source: str


@cache
def codes() -> tuple[Code, ...]:
    """All of them, kind by kind."""
    return tuple(Code(**{**row, "code": int(row["code"])}) for row in rows("codes.csv"))  # type: ignore[arg-type]


@cache
def lore() -> tuple[Lore, ...]:
    return tuple(Lore(**row) for row in rows("folklore.csv"))

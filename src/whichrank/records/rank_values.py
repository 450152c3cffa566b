"""What a job or a person measured for each rank or host: times, rates and checksums, out of tables and lines."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct

Quantity = Literal["work", "data", "wait", "step", "rate", "checksum"]
"""What a value measures: time at work, time for input, time that waits for others, time of a whole step, work per
second, or a checksum of what replicas hold."""

_RATE = re.compile(r"(?:/|per[-_ ]?)s(?:ec(?:ond)?)?\b|throughput|flops?\b|\bmfu\b")
_CHECKSUM = re.compile(
    r"(?<![a-z])sha(?:-?\d{1,3})?(?![a-z])|md5|crc\d*|hash|check-?sum|digest|fingerprint"
    r"|(?:param|weight)s?[-_ ](?:l2[-_ ])?norm"
)
_LOCAL = re.compile(r"grad|loss|batch|data|input|rng|seed|activ|sample|file|commit|git|conf|image|source|token|version")
"""What ranks may have different checksums of."""
_TIME = re.compile(
    r"\b(?:ms|s|us|secs?|seconds?|milliseconds?)\b|_(?:ms|s|us|sec|secs)\b|time|elapsed|duration|latency|^d?t_|_wait$"
)
_WAIT = re.compile(
    r"wait|barrier|sync|comm\b|comm[-_ ]|communicat|all[-_ ]?(?:reduce|gather|to)|scatter|exposed|nccl|recv|send"
    r"|bubble|idle|stall"
)
_DATA = re.compile(r"data|(?<!off)load|fetch|input|read|batch[-_ ]gen|preproc|prepar|^prep$|tokeni[sz]")
_WAIT_FOR_DATA = re.compile(
    r"(?:wait|idle|stall)\w*[-_ ](?:(?:for|on)[-_ ])?(?:data|input|batch)|data[-_ ]?(?:wait|idle|stall)"
)
_WORK = re.compile(r"fwd|bwd|forward|backward|comput|optim|kernel|gemm|matmul|busy|gpu|cpu|model")
_STEP = re.compile(r"step|iter|total|elapsed|epoch|batch")
_PLANNED = re.compile(
    r"back[-_ ]?off|retr(?:y|ies)|time[-_ ]?out|deadline|interval|delay|cool[-_ ]?down|\bttl\b|\beta\b"
)
"""What somebody chose, and did not measure."""

_NO_NAMES = frozenset(
    ("within", "after", "before", "for", "in", "about", "than", "of", "by", "at", "under", "over", "least", "most",
     "every", "last", "next", "until", "to", "up", "around", "since", "only", "another")
)  # fmt: skip
"""`did not answer within 2.0 s`: the word before a time names no measure."""


@lru_cache(maxsize=4096)
def quantity(name: str, *, timed: bool = False) -> Quantity | None:
    """What a value of this name measures; `timed`: it has a unit of time, or its heading says so."""
    name = name.lower()
    if name in _NO_NAMES or _PLANNED.search(name):
        return None
    if _CHECKSUM.search(name):
        return None if _LOCAL.search(name) else "checksum"
    if _RATE.search(name):
        return "rate"
    if not (timed or _TIME.search(name)):
        return None
    kinds: tuple[tuple[Quantity, re.Pattern[str]], ...] = (
        ("data", _WAIT_FOR_DATA), ("wait", _WAIT), ("data", _DATA), ("work", _WORK), ("step", _STEP),
    )  # fmt: skip
    return next((kind for kind, pattern in kinds if pattern.search(name)), "step")


class Member(Struct, frozen=True):
    """Whom a row is about: ranks, a host, or both."""

    ranks: tuple[int, ...] = ()
    host: str | None = None


class RankValue(Struct, frozen=True):
    """One cell: `value` of a number, `token` of a checksum."""

    name: str
    quantity: Quantity
    member: Member
    step: int
    line: int
    quote: str
    value: float = 0.0
    token: str = ""


class RankValues(Struct, frozen=True):
    """All cells of one file, in the order of its lines."""

    source: str
    cells: tuple[RankValue, ...]

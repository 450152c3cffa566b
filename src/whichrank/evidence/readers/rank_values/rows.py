"""Values outside tables: rows below a heading (`rank 3: 212.4`), and lines of a rank with names and values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from whichrank.evidence.text.chunks import PADDING, Chunk
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock
from whichrank.evidence.text.shared_pass import finder
from whichrank.model.late_pattern import late
from whichrank.records.rank_values import Member, Quantity, RankValue, quantity

MOST = 32_768
"""Cells that are kept of one file."""
_LONGEST = 600
_MOST_OF_HOST, _MOST_SHORT = 64, 64
"""Ranks of one host, and names that a legend explains."""
_NUMBER = r"[-+]?\d{1,15}(?:\.\d{1,15})?(?:[eE][-+]?\d{1,3})?"
_WHOLE_NUMBER = re.compile(_NUMBER)
_ROW = re.compile(
    rf"[\s\W]{{0,16}}rank[ _#]{{0,4}}(?P<rank>\d{{1,7}})\s{{0,4}}[:|=]\s{{0,8}}"
    rf"(?P<value>{_NUMBER})\s?(?P<unit>ms|us|s)?\W{{0,4}}",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\s{0,16}(?P<name>[A-Za-z][\w /(),.\[\]-]{1,90}?)\s{0,4}:\s{0,4}")
_TIMED = re.compile(r"(?i)\btim(?:es?|ings?|ers?)\b.{0,40}\((?:ms|s|us|sec\w{0,4})\)|\b(?:ms|seconds|milliseconds)\b")
_OF_PARTS = ("timers", "timings", "breakdown")
"""A line with such a word tells how long the parts of a step took, also without units."""
_OF_DIGESTS = ("digest", "hash", "checksum", "fingerprint", "crc", "md5", "sha1", "sha256")
"""A line with such a word tells what the values of the names behind it come to."""
_LONG_DIGEST = re.compile(r"(?:0x)?(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{8,128}")
_WAITS = frozenset(("wait", "comm", "sync", "idle", "stall", "allreduce", "all_reduce", "barrier"))
_PART = re.compile(
    rf"(?<![\w.])({'|'.join(sorted(_WAITS))}|math|compute|calc|gemm|fwd|bwd|forward|backward|optim|opt|update|load|fetch"
    r"|read|data|input|prep|copy|h2d|d2h|rollout|decode)[\"']?\s{0,4}[=:]?\s{0,8}\d{1,6}\.\d{1,6}(?![\d.])"
)
_PARTS_AT_LEAST = 3
_UNITS = ("tim", "ms", "seconds")
"""One of these stands in every heading of times."""
_STEP = re.compile(r"(?i)\b(?:global[ _])?(?:step|iter(?:ation)?)[ =:#\"]{1,4}(\d{1,12})\b")
_STEP_WITHIN = re.compile(r"(?:step|iter(?:ation)?)[ =:#\"]{1,4}\d")
"""In lower case: what stands in every line that tells a step, found sooner than the step itself."""
_SAYS_RANK = re.compile(r"(?i)(?<![\w-])(?:global[_ ])?rank\s?[=:#]?\s?(\d{1,7})\b")
_RANKS_OF_HOST = re.compile(
    r"(?:(?<![\w.-])(?P<host>[A-Za-z][\w.-]{0,60}\d[\w.-]{0,20})[:,]? )?ranks? (?P<first>\d{1,7})-(?P<last>\d{1,7})\b"
)
"""`node-041 ranks 328-335`."""
_LEGEND = re.compile(r"(?<![\w.])(?P<name>[A-Za-z]\w{0,11}) ?= ?(?P<meaning>[A-Za-z][A-Za-z +/-]{3,80})")
_IN_BRACKETS = re.compile(r"\[[\w.-]{2,60}\]\[\d")
"""`[node0][5]`: a host and a rank."""
_PAIR = re.compile(
    rf"(?<![\w.])(?P<name>[A-Za-z][\w./+-]{{1,40}})(?:\"?\s?[=:]\s?|\s{{1,8}}|\s?\((?P<within>ms|us|s|secs?|seconds)\)[=:]\s?)"
    rf"(?P<value>(?:0x)?[0-9a-fA-F]{{6,128}}|{_NUMBER})\s?(?P<unit>ms|us|s)?(?![\w.])"
)
_TOKENS = late(
    r"\"?(?P<name>[A-Za-z][\w./-]{1,40})\"?\s?[=:]\s?"
    r"\[(?P<value>\"?[0-9a-f]{6,64}\"?(?:, ?\"?[0-9a-f]{6,64}\"?){0,15})\]"
)
"""`"gemm_bf16": ["9c41f07be2", "9c41f07be2"]`: digests of repeats."""
_UNIT_FIRST = re.compile(r"(?<![\w.])(ms|us|seconds|milliseconds)\s?[:=]\s?(?=[a-z])", re.IGNORECASE)
"""`ms: forward 212 backward 430`: the unit of all that follow."""
_UNITS_SHORT = {"sec": "s", "secs": "s", "seconds": "s", "milliseconds": "ms"}


_MEASURES = (
    *_UNITS, "sec", "pers", "per s", "per-s", "per_s", "sha", "md5", "crc", "hash", "sum", "digest", "fingerprint",
    "norm", "throughput", "flop", "mfu", "elapsed", "duration", "latency", " t_", " dt_",
)  # fmt: skip
_SECONDS = r"s(?<![a-z]s)(?![a-z0-9])"
_ROW_WITHIN = r"rank[ _#]{0,4}\d{1,7}\s{0,4}[:|=]\s{0,8}[-+]?\d"
_WAIT_WITHIN = r"(?:wait|comm|sync|idle|stall|all_?reduce|barrier)[\"']?\s?[=:]?\s?\d"
_NAMES_MEASURE = tuple(re.compile(shape) for shape in (_SECONDS, _ROW_WITHIN, _WAIT_WITHIN))
_NAMES_MEASURE_IN_BYTES = tuple(re.compile(shape.encode()) for shape in (_SECONDS, _ROW_WITHIN, _WAIT_WITHIN))
_WORDS = frozenset(word.encode() for word in _MEASURES)
_MANY = 1 << 13
"""Bytes from which on lines that name a measure are looked for all at once."""


def measuring(data: bytes, first: int) -> frozenset[int] | None:
    """The numbers of the lines that name something that is measured; None where they are few: each is asked."""
    if len(data) < _MANY:
        return None
    lower = data.lower()
    chunk = Chunk(bytearray(lower + bytes(PADDING)), len(lower), 0, first)
    places = [found.start() for shape in _NAMES_MEASURE_IN_BYTES for found in shape.finditer(lower)]
    lines = np.unique(chunk.index(np.append(finder(_WORDS).find(chunk).places, places)))
    return frozenset((lines + first).tolist())


def _may_tell(line: str, number: int, measure: frozenset[int] | None) -> bool:
    """Whether a line that speaks of ranks may be a row, a heading, or name something that is measured: a quick look."""
    if line.startswith("{") or "\x1b" in line or line.rstrip().endswith(":"):
        return True
    if measure is not None and line.isascii():
        return number in measure
    lower = line.lower()
    return any(map(lower.__contains__, _MEASURES)) or any(shape.search(lower) for shape in _NAMES_MEASURE)


def rows(
    lines: Sequence[tuple[int, str]],
    clock: Clock,
    measure: frozenset[int] | None = None,
    writer: Member | None = None,
    tagged: Clock | None = None,
) -> Iterator[RankValue]:
    """Values of single ranks, in the order of the lines; `measure`: what `measuring` said of them; `writer`: whose
    the lines are that name no rank; `tagged`: who hears the rank in what stands before them."""
    name, timed, step = "", False, -1
    legend: dict[str, str] = {}
    for number, line in lines:
        if len(line) > _LONGEST or "NCCL INFO" in line:  # what NCCL counts and times has a reader of its own
            continue
        if line.startswith("#") and len(legend) < _MOST_SHORT:
            legend |= {short["name"]: short["meaning"] for short in _LEGEND.finditer(line)}
        keyed = clock.rank_key is not None and line.startswith("{")
        if "ank" not in line and "ANK" not in line and not keyed and not _IN_BRACKETS.match(line):
            if (writer is not None or tagged is not None) and _may_tell(line, number, measure):
                voice = listen(line.encode(), tagged or clock)
                mine = Member((voice.rank,)) if voice.rank is not None else writer
                if mine is not None:
                    yield from _pairs(voice.text, mine, number, step, legend)
            step, name, timed = _between(line, clock, step, name, timed)
            continue
        if not _may_tell(line, number, measure) and not any(f"{short}=" in line for short in legend):
            continue
        voice = listen(line.encode(), clock)
        text = voice.text
        if row := _ROW.fullmatch(text) or _ROW.fullmatch(line):  # the rank may have been taken for a prefix
            kind = quantity(name, timed=timed or bool(row["unit"])) if name or timed or row["unit"] else None
            if kind is not None:
                member = Member((int(row["rank"]),))
                yield RankValue(
                    name or "time", kind, member, step, number, line.strip(), _number(row["value"], row["unit"])
                )
            continue
        name, timed = _heading(text, name, timed)
        said = _SAYS_RANK.search(text)
        rank = voice.rank if voice.rank is not None else int(said[1]) if said else None
        if rank is not None:
            yield from _pairs(text, Member((rank,)), number, step, legend)
        elif (several := _RANKS_OF_HOST.search(text)) and int(several["last"]) - int(several["first"]) < _MOST_OF_HOST:
            ranks = tuple(range(int(several["first"]), int(several["last"]) + 1))
            yield from _pairs(text, Member(ranks, several["host"]), number, step, legend)


def _between(line: str, clock: Clock, step: int, name: str, timed: bool) -> tuple[int, str, bool]:
    """The step, and what the rows below are about, behind a line that speaks of no rank."""
    lower = line.lower()
    if line.rstrip().endswith(":"):
        name, timed = _heading(listen(line.encode(), clock).text, name, timed)
    elif (name or not timed) and _is_timed(line, lower):
        name, timed = "", True
    return _step(line, lower, step), name, timed


def _heading(line: str, name: str, timed: bool) -> tuple[str, bool]:
    """What the rows below are about."""
    if not line.strip():
        return name, timed
    of_times = _is_timed(line, line.lower())
    if (match := _HEADING.fullmatch(line)) and (not of_times or quantity(match["name"], timed=False) is not None):
        return match["name"].strip(), timed or of_times
    return ("", True) if of_times else (name, timed)


def _is_timed(line: str, lower: str) -> bool:
    return ("tim" in lower or "ms" in lower or "seconds" in lower) and _TIMED.search(line) is not None


def _step(line: str, lower: str, before: int) -> int:
    """The step that a line tells, or the one before."""
    maybe = ("step" in lower or "iter" in lower) and _STEP_WITHIN.search(lower)
    told = _STEP.search(line) if maybe else None
    return int(told[1]) if told else before


def _pairs(text: str, member: Member, number: int, step: int, legend: dict[str, str]) -> Iterator[RankValue]:
    """`step 100 fwd_ms=212.4 param_sha1 0f8c1a77`; what a legend says of a name counts for it."""
    lower = text.lower()
    step, parts = _step(text, lower, step), any(map(lower.__contains__, _OF_PARTS)) or _tells_parts(lower)
    head, digests = _UNIT_FIRST.search(text), any(map(lower.__contains__, _OF_DIGESTS))
    for pair in _PAIR.finditer(text):
        name, value, unit = (
            pair["name"],
            pair["value"],
            pair["unit"] or _UNITS_SHORT.get(pair["within"], pair["within"]),
        )
        if head is not None and pair.start() >= head.end() and not unit:
            unit = _UNITS_SHORT.get(head[1].lower(), head[1])
        timed = bool(unit) or name in legend
        kind: Quantity | None = quantity(legend.get(name, name), timed=timed or parts)
        if kind is None and digests and _LONG_DIGEST.fullmatch(value):
            kind = quantity(f"{name} digest")  # `digest step=900 params=f0f1826f buffers=91be8556`
        if kind is None or (kind == "step" and parts and not timed and quantity(name) is None):
            continue
        if kind == "checksum":
            yield RankValue(name, kind, member, step, number, text.strip(), token=value.lower())
        elif _WHOLE_NUMBER.fullmatch(value):
            yield RankValue(name, kind, member, step, number, text.strip(), _number(value, unit))
    for told in _TOKENS.finditer(text) if "[" in text else ():
        if re.search("[a-f]", told["value"]):
            yield RankValue(told["name"], "checksum", member, step, number, text.strip(), token=told["value"].lower())


def _tells_parts(lower: str) -> bool:
    """Whether a line tells of a wait and of two other parts of a step: `math 6.4 fetch 6.6 wait 0.1`."""
    if "." not in lower or not any(map(lower.__contains__, _WAITS)):
        return False
    parts = {part[1] for part in _PART.finditer(lower)}
    named = {pair["name"]: quantity(pair["name"], timed=True) for pair in _PAIR.finditer(lower) if "." in pair["value"]}
    parts |= {name for name, kind in named.items() if kind in ("work", "data", "wait")}
    return len(parts) >= _PARTS_AT_LEAST and not parts.isdisjoint(_WAITS)


def _number(text: str, unit: str | None) -> float:
    return float(text) * {"s": 1000.0, "us": 0.001}.get((unit or "").lower(), 1.0)

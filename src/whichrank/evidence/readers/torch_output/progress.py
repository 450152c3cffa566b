"""The training's own lines, of scripts and of the usual frameworks: step, epoch, loss, speed."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import islice, product
from typing import BinaryIO

import numpy as np
from msgspec import Struct

from whichrank.evidence.text.newest_lines import Line, decoded, newest_lines, oldest_lines
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock
from whichrank.evidence.text.prefixes.voice import Voice
from whichrank.evidence.text.words import Words
from whichrank.model.contracts import Item
from whichrank.records.log import ABSENT, FINITE, INFINITE, NOT_A_NUMBER, Progress

KEPT, MOST = 256, 65_536
"""Lines read of a file, from its end: so many, or more where many ranks speak in it."""
OF_EACH_RANK = 128
_FIRST, _BEGINNING = 16, 4 << 20
"""So many of the first lines are read as well, if they stand within this of the beginning: they tell when it began."""
_LOOKED_AT = 16_384
"""Lines with the words of progress that are none, after which no more are looked for."""
_LONGEST = 1024
_VALUE = r"([-+]?(?:\d{1,20}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|\.\d{1,30}|nan|inf(?:inity)?))(?![a-z])"
# All of these read text in lower case; most begin with a letter, so that a search passes over the others at once.
# A step is none of the warm-up, and no end of another word.
_FREE = "(?<![a-z].)(?<!warmup .)"
_ABROAD = "étape|schritt|passo|paso|krok|шаг|步|步数|ステップ|스텝"
"""What a step is called elsewhere."""
_STEP = re.compile(
    rf"(?:g{_FREE}lobal[ _]?step|s{_FREE}tep|i{_FREE}t(?:er(?:ation)?)?|{_ABROAD})s?[\"']?"
    r"(?:\s{0,8}[:=#]\s{0,8}|\s{1,8})\[?\s{0,8}(\d{1,12})(?![.\d])"
    r"(?:\s{0,8}/\s{0,8}(\d{1,12}))?"
)
_OTHER_STEP = re.compile(
    r"(?<![\w.-])(?:i ?=|update|round|episode)s?[ :=#]{0,3}(\d{1,12})(?![.\d])(?:\s{0,4}/\s{0,4}(\d{1,12}))?"
)
"""What else programs count, in a line with a loss: `i=71`, `update 200`."""
_EPOCH = re.compile(r"epoch(?<![a-z]epoch)s?[\"']?\s{0,8}[:=\[(]{0,2}\s{0,8}[\"']?(\d{1,9}(?:\.\d{1,12})?)")
# `Epoch: [0][ 10/5005]`, `Epoch(train) [1][ 50/1251]`, `Train: 0 [  50/1251 (  4%)]`.
_BRACKET_STEP = re.compile(r"\[\s{0,8}(\d{1,12})/\s{0,8}(\d{1,12})(?:\s{0,4}\([\d\s.]{1,8}%\))?\]")
_LOSS = re.compile(r"loss[\"']?\s{0,8}[:=]?\s{0,8}(?:tensor\()?[\"'(]?" + _VALUE)
_NORM = re.compile(r"(?:grad[ _]?norm|gnorm)[\"']?\s{0,8}[:=]?\s{0,8}[\"'(]?" + _VALUE)
_OWN = re.compile(r"(?:local|own|shard)[-_ ](?:[a-z]{1,20}[-_ ]){0,2}[a-z]{0,20}\s?[:=]?\s{0,4}[-+]?(?:nan|inf)\b")
_BAR = re.compile(
    r"%\|[^|]{0,400}\|\s{0,4}(\d{1,12})/(\d{1,12}) \[[\d:?]{1,12}<[^,\]]{0,20}, {1,4}"
    r"([\d.]{1,12}|\?) ?(it/s|s/it|\w{1,12}/s|s/\w{1,12})?"
)
_PER_STEP = re.compile(
    r"(?:elapsed time per iteration|(?:step|iter(?:ation)?|batch)[ _]time|(?<![a-z_])dt)"
    r"\s{0,4}\(?(?P<before>ms|s)?\)?\s{0,4}[:=]?\s{0,4}(?P<named>\d{1,12}(?:\.\d{1,12})?)\s?(?P<behind>ms|s)?(?![\w:/])"
    r"|(?<![\w.:])(?P<each>\d{1,12}(?:\.\d{1,12})?) ?(?P<unit>ms|s|sec)/(?:step|it|iter|iteration|batch)\b"
    r"|(?<![\w.:])(?P<rate>\d{1,12}(?:\.\d{1,12})?) ?(?:it|iter|step|batche?)s?/s(?:ec)?\b"
)
"""How long a step took, as lines put it that are no progress bar."""
_RANK = re.compile(r"rank(?<![a-z_]rank)(?<!local rank)(?<!group rank)[ :=#]{0,3}(\d{1,7})(?!\d)")
_NONFINITE = re.compile(
    rb"(?:loss|norm)[\"']?\s{0,8}[:=]?\s{0,8}(?:tensor\()?[\"'(]?[-+]?(?:nan|inf)"
    rb"|(?:[:=] ?|\s)[-+]?(?:nan|inf)\s{0,4}(?:$|[,;|)\]}])|[\d:=\[] ?[-+]?(?:nan|inf),? [-+\d]"
    rb"|(?<!no )(?:non-?finite|not finite)(?!\W{0,4}0\b)"
    rb"|(?:m(?:ax|in|ean)|std|sum|value|local|grad) [-+]?(?:nan|inf)\b"
)
_BY_RANK = re.compile(
    r"\b(?:by|per|each|across)[ _-](?:all )?ranks?\b[^\d\n]{0,20}[:=\[(] {0,4}"
    r"((?:(?:[-+]?\d[\d.e+-]{0,20}|[-+]?nan|[-+]?inf)[,;|]? {0,4}){3,65536})"
)
STEMS = (
    *(b"loss", b"step", b"iter", b"it/s", b"s/it", b"epoch", "Étape".encode()),
    *(word.encode() for word in _ABROAD.split("|")),
)
# A value that is not a number, with what may stand before it; " inf" alone would find every INFO line.
NONFINITE = frozenset(
    (before + value).encode()
    for befores, values in (
        ((" ", ":", "=", "'", '"', "(", "-"), ("nan", "NaN", "NAN")),
        (
            ("s=", "m=", " =", "s:", "m:", "s: ", "m: ", "s ", "m ", "': ", '": ', "'", '"', "(", "-"),
            ("inf", "Inf", "INF"),
        ),
    )
    for before, value in product(befores, values)
) | {b" inf\n", b" inf ", b" inf,", b"non-finite", b"nonfinite", b"not finite"}
_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_MOST_SHAPES = 1 << 12
_TOO_LONG = 1 << 16
_NOT = (b" NCCL INFO", b" NCCL WARN", b".cpp:", b'File "', b"Watchdog")
_SURE = re.compile(b"|".join(stem + rb"\D{0,200}(?:\d|nan|inf)" for stem in STEMS))
_RATE = re.compile(rb"\d\D{0,3}(?:it/s|s/it)")


def worth(line: bytes) -> bool:
    """True where a line may be progress, by its words."""
    if len(line) > _TOO_LONG or any(word in line for word in _NOT):
        return False
    lower = line[:4096].lower()
    if _SURE.search(lower) is not None:
        return True
    return (b"it/s" in lower or b"s/it" in lower) and _RATE.search(lower) is not None


def nonfinite(line: bytes) -> bool:
    """True where a loss, a norm of the gradient or any other value is not a number."""
    return _NONFINITE.search(line[:4096].lower()) is not None


class Step(Struct):
    """One line of progress."""

    step: int = -1
    total: int = -1
    epoch: float = math.nan
    loss: float = math.nan
    loss_state: int = ABSENT
    seconds: float = math.nan
    rank: int = -1
    """As the words say; a prefix or the file's name know better."""


def parse(voice: Voice) -> Step | None:
    """What a line says about the training's progress; None where it says nothing."""
    text = voice.text[:_LONGEST].lower()
    step = Step()
    if match := _LOSS.search(text):
        step.loss = float(match[1])
        odd = NOT_A_NUMBER if math.isnan(step.loss) else INFINITE
        step.loss_state = FINITE if math.isfinite(step.loss) else odd
    _read_place(text, step)
    if voice.rank is None and "rank" in text and (match := _RANK.search(text)):
        step.rank = int(match[1])
    if step.step < 0 and step.loss_state == ABSENT:
        return None
    return step


def norm_of(voice: Voice) -> float:
    """The norm of the gradient that a line tells; 0 where it tells none."""
    match = _NORM.search(voice.text[:_LONGEST].lower())
    return float(match[1]) if match else 0.0


def own_is_nonfinite(voice: Voice) -> bool:
    """Whether a value that the line calls the rank's own is not a number."""
    return _OWN.search(voice.text[:_LONGEST].lower()) is not None


def only_nonfinite(voice: Voice) -> int | None:
    """The one rank whose value is not a number, of a line that lists the values of all ranks in their order."""
    listed = _BY_RANK.search(voice.text.lower())
    values = re.split(r"[,;|\s]+", listed[1].strip(" ,;|")) if listed else []
    odd = [rank for rank, value in enumerate(values) if value.lstrip("+-") in ("nan", "inf")]
    return odd[0] if len(odd) == 1 else None


def _read_place(text: str, step: Step) -> None:
    match = _BAR.search(text) if "%|" in text else None
    match = match or _STEP.search(text) or _BRACKET_STEP.search(text)
    if match is None and step.loss_state != ABSENT:
        match = _OTHER_STEP.search(text)
    if match:
        step.step = int(match[1])
        step.total = int(match[2]) if match[2] else -1
        if match.re is _BAR and match[3] != "?" and match[4]:
            rate = _number(match[3])
            step.seconds = (rate if match[4].startswith("s/") else 1 / rate) if rate else math.nan
    if "epoch" in text and (match := _EPOCH.search(text)):
        step.epoch = float(match[1])
    if math.isnan(step.seconds) and ("time" in text or "dt" in text or "/" in text):
        step.seconds = _per_step(text)


def _per_step(text: str) -> float:
    """The seconds of a step that a line tells, or nan."""
    match = _PER_STEP.search(text)
    if match is None:
        return math.nan
    if match["rate"]:
        return 1 / rate if (rate := _number(match["rate"])) else math.nan
    in_ms = "ms" in (match["before"], match["behind"], match["unit"])
    return _number(match["named"] or match["each"]) * (0.001 if in_ms else 1.0)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def rank_of(voice: Voice, of_file: int | None, step: Step) -> int:
    """The line's prefix, then the file's name, then the words of the line."""
    if voice.rank is not None:
        return voice.rank
    return step.rank if of_file is None else of_file


def read(item: Item, breaks: int, clock: Clock, rank: int | None) -> Progress | None:
    """The columns of the newest lines and of some of the first; `rank` is the file's own, `breaks` its lines.

    None where nothing is progress."""
    with item.open() as stream:
        text = decoded(stream)
        source: BinaryIO = stream if text is None else io.BytesIO(text)
        size = item.size if text is None else len(text)
        rows = list(_rows(newest_lines(source, size, breaks, _words()), clock, rank))[::-1]
        full = len(rows) >= KEPT
        if full and text is None:
            first = islice(_rows(oldest_lines(stream, _BEGINNING, _words()), clock, rank), _FIRST)
            rows[:0] = [row for row in first if row[0] < rows[0][0]]
    return _columns(item.label, rows, full) if rows else None


@cache
def _words() -> Words:
    return Words(STEMS)


def _may_be_progress(line: bytes) -> bool:
    """As `worth`, once for all lines that differ in digits only."""
    return len(line) <= _TOO_LONG and _worth(line[:_LONGEST].translate(_AS_ZEROS))


_worth = lru_cache(_MOST_SHAPES)(worth)
"""Shared by all files: they repeat the shapes of their lines."""


Row = tuple[int, int, Step]
"""Number of the line, time, and what it says."""


def _rows(lines: Iterable[Line], clock: Clock, rank: int | None) -> Iterator[Row]:
    """What the lines say, until enough is known of every rank that speaks."""
    ranks: set[int] = set()
    given = 0
    for looked_at, (number, line) in enumerate(lines):
        if given >= min(MOST, max(KEPT, OF_EACH_RANK * len(ranks))) or looked_at > _LOOKED_AT + 2 * given:
            return
        if not _may_be_progress(line):
            continue
        voice = listen(line[:_LONGEST], clock)
        step = parse(voice)
        if step is not None:
            step.rank = rank_of(voice, rank, step)
            ranks.add(step.rank)
            given += 1
            yield number, voice.time_ns or 0, step


def _columns(source: str, rows: list[Row], full: bool) -> Progress:
    steps = [row[2] for row in rows]
    return Progress(
        source=source,
        full=full,
        step=np.array([step.step for step in steps], np.int64),
        total=np.array([step.total for step in steps], np.int64),
        epoch=np.array([step.epoch for step in steps], np.float64),
        time_ns=np.array([row[1] for row in rows], np.int64),
        loss=np.array([step.loss for step in steps], np.float64),
        loss_state=np.array([step.loss_state for step in steps], np.int8),
        seconds_per_step=np.array([step.seconds for step in steps], np.float64),
        rank=np.array([step.rank for step in steps], np.int32),
        line=np.array([row[0] for row in rows], np.int64),
    )

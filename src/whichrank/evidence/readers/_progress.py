"""The training's own lines, of scripts and of the usual frameworks: step, epoch, loss, speed."""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass

import numpy as np

from whichrank.evidence.readers._prefixes import Clock, Voice, listen
from whichrank.records.log import ABSENT, FINITE, INFINITE, NOT_A_NUMBER, Progress

KEPT = 65_536
_LONGEST = 1024
_VALUE = r"([-+]?(?:\d{1,20}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|\.\d{1,30}|nan|inf(?:inity)?))(?![a-z])"
_STEP = re.compile(
    r"(?<![a-z])(?<!warmup )(?:global[ _]?step|step|iteration|iter|it)s?[\"']?"
    r"(?:\s{0,8}[:=#]\s{0,8}|\s{1,8})\[?\s{0,8}(\d{1,12})(?![.\d])"
    r"(?:\s{0,8}/\s{0,8}(\d{1,12}))?",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"(?<![a-z])epochs?[\"']?\s{0,8}[:=\[(]{0,2}\s{0,8}[\"']?(\d{1,9}(?:\.\d{1,12})?)", re.IGNORECASE)
# `Epoch: [0][ 10/5005]`, `Epoch(train) [1][ 50/1251]`, `Train: 0 [  50/1251 (  4%)]`.
_BRACKET_STEP = re.compile(r"\[\s{0,8}(\d{1,12})/\s{0,8}(\d{1,12})(?:\s{0,4}\([\d\s.]{1,8}%\))?\]")
_LOSS = re.compile(r"loss[\"']?\s{0,8}[:=]?\s{0,8}(?:tensor\()?[\"'(]?" + _VALUE, re.IGNORECASE)
_NORM = re.compile(r"grad[ _]?norm[\"']?\s{0,8}[:=]?\s{0,8}[\"'(]?" + _VALUE, re.IGNORECASE)
_BAR = re.compile(
    r"%\|[^|]{0,400}\|\s{0,4}(\d{1,12})/(\d{1,12}) \[[\d:?]{1,12}<[^,\]]{0,20}, {1,4}"
    r"([\d.]{1,12}|\?) ?(it/s|s/it|\w{1,12}/s|s/\w{1,12})?"
)
_PER_STEP = re.compile(
    r"(?:elapsed time per iteration|step[ _]time)\s{0,4}\(?(ms|s)?\)?\s{0,4}[:=]\s{0,4}([\d.]{1,16})",
    re.IGNORECASE,
)
_RANK = re.compile(r"(?<![a-z_])(?<!local )(?<!group )rank[ :=#]{0,3}(\d{1,7})(?!\d)", re.IGNORECASE)
_NONFINITE = re.compile(rb"(?:loss|norm)[\"']?\s{0,8}[:=]?\s{0,8}(?:tensor\()?[\"'(]?[-+]?(?:nan|inf)", re.IGNORECASE)
STEMS = (b"loss", b"step", b"iter", b"it/s", b"s/it", b"epoch")
# Four letters each; " inf" and ":inf" would find every INFO line.
NONFINITE = (
    b" nan", b":nan", b"=nan", b"'nan", b'"nan', b"(nan", b"-nan", b"=inf", b"'inf", b'"inf', b"(inf",
    b"-inf",
)  # fmt: skip
_NOT = (b" NCCL INFO", b" NCCL WARN", b".cpp:", b'File "', b"Watchdog")
_SURE = re.compile(rb"(?:loss|step|iter|it/s|s/it|epoch)\D{0,200}(?:\d|nan|inf)|\d\D{0,3}(?:it/s|s/it)", re.IGNORECASE)


def worth(line: bytes) -> bool:
    """True where a line may be progress, by its words."""
    if len(line) > 65536 or any(word in line for word in _NOT):
        return False
    lower = line.lower()
    return any(word in lower for word in STEMS) and _SURE.search(line[:4096]) is not None


def nonfinite(line: bytes) -> bool:
    """True where a loss or a norm of the gradient is no number."""
    return _NONFINITE.search(line[:4096]) is not None


@dataclass(slots=True)
class Step:
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
    text = voice.text[:_LONGEST]
    step = Step()
    if match := _LOSS.search(text):
        step.loss = float(match[1])
        odd = NOT_A_NUMBER if math.isnan(step.loss) else INFINITE
        step.loss_state = FINITE if math.isfinite(step.loss) else odd
    _read_place(text, step)
    if voice.rank is None and (match := _RANK.search(text)):
        step.rank = int(match[1])
    if step.step < 0 and step.loss_state == ABSENT:
        return None
    return step


def norm_of(voice: Voice) -> float:
    """The norm of the gradient that a line tells; 0 where it tells none."""
    match = _NORM.search(voice.text[:_LONGEST])
    return float(match[1]) if match else 0.0


def _read_place(text: str, step: Step) -> None:
    match = _BAR.search(text) or _STEP.search(text) or _BRACKET_STEP.search(text)
    if match:
        step.step = int(match[1])
        step.total = int(match[2]) if match[2] else -1
        if match.re is _BAR and match[3] != "?" and match[4]:
            rate = _number(match[3])
            step.seconds = (rate if match[4].startswith("s/") else 1 / rate) if rate else math.nan
    if match := _EPOCH.search(text):
        step.epoch = float(match[1])
    if math.isnan(step.seconds) and (match := _PER_STEP.search(text)):
        step.seconds = _number(match[2]) * (0.001 if match[1] == "ms" else 1.0)


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


class Lines:
    """Holds the newest lines of progress as bytes and reads them at the end: most are never looked at."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self.add = self._lines.append
        """Takes (line number, line). A million calls: no function of ours in between."""

    def progress(self, clock: Clock, rank: int | None) -> Progress | None:
        """The columns; `rank` is the file's own. None where nothing was progress."""
        rows: list[tuple[int, int, Step]] = []
        for number, line in self._lines:
            voice = listen(line[:_LONGEST], clock)
            step = parse(voice)
            if step is not None:
                step.rank = rank_of(voice, rank, step)
                rows.append((number, voice.time_ns or 0, step))
        if not rows:
            return None
        steps = [row[2] for row in rows]
        return Progress(
            source=self._source,
            full=len(self._lines) == KEPT,
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

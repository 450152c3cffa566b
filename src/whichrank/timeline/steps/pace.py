"""How long a job's steps took, by its own lines, and where that changed."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from whichrank.model.evidence import Ref
from whichrank.records.events.base import Event
from whichrank.records.log import Progress

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_STEPS_BEFORE, _STEPS_AT_ONCE, _SLOWER = 4, 5, 1.1
"""A pace is known by so many steps, and changed where so many in a row take this many times as long."""
_FOR_GOOD = 1.3
"""A job became slower where nearly all steps to its end take this many times as long as nearly all before."""
_NEARLY_ALL = 0.9
_ALIKE = 3
"""Lines that repeat a step this many times as often, or as rarely, as before belong to another phase."""
_OFTEN, _MANY_TIMES, _LONG_NS = 4, 4, 60_000_000_000
"""A job is stuck if all ranks repeat their last step this often, for this many times its longest step, and so long."""


def stands_at(case: Case) -> Ref | None:
    """The step that all ranks of an output repeat to its end."""
    return next((ref for progress in case.progress if (ref := _stands_at(progress)) is not None), None)


def _stands_at(progress: Progress) -> Ref | None:
    stays = [_stay(progress, rank) for rank in np.unique(progress.rank).tolist()]
    if not stays or None in stays:
        return None
    row, seconds = min((stay for stay in stays if stay is not None), key=lambda stay: stay[1])
    told = f"step {progress.step[row]} is told again and again for {seconds:.0f} s"
    return Ref(progress.source, f"line {progress.line[row]}", told, int(progress.rank[row]))


def _stay(progress: Progress, rank: int) -> tuple[int, float] | None:
    """The first line of a rank with its last step, and for how long it says the same; None where that is not long."""
    rows = np.flatnonzero((progress.step >= 0) & (progress.rank == rank) & (progress.time_ns > 0))
    steps, times = progress.step[rows], progress.time_ns[rows]
    moves = np.flatnonzero(np.diff(steps) > 0)
    if len(moves) < _STEPS_BEFORE or len(steps) - 1 - moves[-1] < _OFTEN or (np.diff(steps) < 0).any():
        return None
    begin = int(moves[-1]) + 1
    gaps, losses = np.diff(times), progress.loss[rows][begin:]
    shorter, longer = sorted((float(np.median(gaps[:begin])), float(np.median(gaps[begin:]))))
    moves_on = len(np.unique(losses[np.isfinite(losses)])) > 1
    if longer > _ALIKE * shorter or moves_on:
        return None
    since, usual = times[begin], gaps[moves].max()
    stays = int(times[-1] - since)
    return (int(rows[begin]), stays / 1e9) if stays > max(_LONG_NS, _MANY_TIMES * int(usual)) else None


def slowed_down(case: Case) -> Ref | None:
    """The step from which on steps took longer by far, to the end of the output."""
    return next((ref for progress in case.progress if (ref := _slowed_down(progress)) is not None), None)


def _slowed_down(progress: Progress) -> Ref | None:
    rows = _of_one_rank(progress)
    if len(rows) < _STEPS_BEFORE + _STEPS_AT_ONCE:
        return None
    pace = _seconds_per_step(progress, rows)
    rows, pace = rows[pace > 0], pace[pace > 0]
    if len(pace) < _STEPS_BEFORE + _STEPS_AT_ONCE:
        return None
    at = _split(np.log(pace))
    before, after = pace[:at], pace[at:]
    if np.quantile(after, 1 - _NEARLY_ALL) < _FOR_GOOD * np.quantile(before, _NEARLY_ALL):
        return None
    told = f"{np.median(after):.3g} s per step from here on, {np.median(before):.3g} s before"
    rank = int(progress.rank[rows[at]])
    return Ref(progress.source, f"line {progress.line[rows[at]]}", told, rank if rank >= 0 else None)


def _split(values: npt.NDArray[np.float64]) -> int:
    """Where the two parts, before and from there on, differ most for their sizes."""
    size = np.arange(1, len(values))
    left = np.cumsum(values)[:-1]
    gain = left**2 / size + (values.sum() - left) ** 2 / (len(values) - size)
    return int(np.argmax(gain[_STEPS_BEFORE - 1 : len(values) - _STEPS_AT_ONCE])) + _STEPS_BEFORE


def kept_pace(case: Case, event: Event) -> bool:
    """Whether steps took no longer behind what an event tells than before: it slowed nothing down."""
    paces = [pace for progress in case.progress if (pace := _pace_around(progress, event)) is not None]
    return bool(paces) and all(
        max(median(after[at : at + _STEPS_AT_ONCE]) for at in range(len(after) - _STEPS_AT_ONCE + 1))
        <= _SLOWER * median(before)
        for before, after in paces
    )


def _pace_around(progress: Progress, event: Event) -> tuple[list[float], list[float]] | None:
    """Seconds per step before and behind an event, of one rank; None where too few tell."""
    rows = _of_one_rank(progress)
    if len(rows) < _STEPS_BEFORE + _STEPS_AT_ONCE:
        return None
    if progress.source == event.ref.source:
        behind = progress.line[rows] > event.line
    elif event.time_ns and (progress.time_ns[rows] > 0).all():
        behind = progress.time_ns[rows] > event.time_ns
    else:
        return None
    pace = _seconds_per_step(progress, rows)
    known = ~np.isnan(pace)
    before, after = pace[known & ~behind].tolist(), pace[known & behind].tolist()
    return (before, after) if len(before) >= _STEPS_BEFORE and len(after) >= _STEPS_AT_ONCE else None


def _of_one_rank(progress: Progress) -> npt.NDArray[np.int64]:
    """The lines with a step of one rank: of the first of those that say most."""
    if not len(progress):
        return np.empty(0, np.int64)
    ranks, often = np.unique(progress.rank, return_counts=True)
    return np.flatnonzero((progress.step >= 0) & (progress.rank == ranks[np.argmax(often)]))


def _seconds_per_step(progress: Progress, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """As printed, or by the clock; nan where neither tells."""
    told = progress.seconds_per_step[rows]
    if not np.isnan(told).all():
        return told
    steps, times = np.diff(progress.step[rows]), np.diff(progress.time_ns[rows]) / 1e9
    known = (steps > 0) & (times > 0) & (progress.time_ns[rows][:-1] > 0)
    return np.append(np.nan, np.where(known, times / np.where(known, steps, 1), np.nan))

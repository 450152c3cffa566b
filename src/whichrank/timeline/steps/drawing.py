"""A profile as a sequence of states, for drawing, in a bounded number of pieces."""

from __future__ import annotations

import numpy as np

from whichrank.records.profiles.steps import COMPUTES, EXPOSED, IDLES, MOVES, OTHER, OVERLAPS, Map
from whichrank.timeline.steps.intervals import Cover, gaps
from whichrank.timeline.steps.work import Work

MOST = 1500
"""Pieces that are kept of one rank; shorter ones are merged into their neighbours."""


def draw(work: Work, start: int, end: int) -> Map:
    """States from `start` to `end`."""
    states = [
        (OVERLAPS, work.communication - work.exposed),
        (COMPUTES, work.compute - work.communication),
        (EXPOSED, work.exposed),
        (MOVES, work.moved),
        *((IDLES + reason, cover) for reason, cover in work.idle.items()),
        (IDLES + OTHER, gaps(work.explained, start, end)),
    ]
    return _sequence(states, start, end)


def _sequence(states: list[tuple[int, Cover]], start: int, end: int) -> Map:
    at = np.concatenate([cover.start for _, cover in states])
    until = np.concatenate([cover.end for _, cover in states])
    state = np.concatenate([np.full(len(cover.start), code, np.int8) for code, cover in states])
    keep = (until > start) & (at < end)
    order = np.argsort(at[keep], kind="stable")
    at, state = np.maximum(at[keep][order], start), state[keep][order]
    length = np.minimum(until[keep][order], end) - at
    if len(at) > MOST:
        smallest = np.partition(length, len(at) - MOST)[len(at) - MOST]
        long = length >= max(int(smallest), 1)
        at, state = at[long], state[long]
    changes = np.concatenate(([True], state[1:] != state[:-1])) if len(state) else np.zeros(0, np.bool_)
    return Map(np.concatenate((at[changes], [end])), np.concatenate((state[changes], [IDLES + OTHER])).astype(np.int8))

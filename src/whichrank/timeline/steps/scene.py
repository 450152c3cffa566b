"""What advice is worked out from: the steps of a job, and their replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from whichrank.model.step_report import CollectiveShare
from whichrank.timeline.steps.matching import Matched
from whichrank.timeline.steps.rebucketing import Backward
from whichrank.timeline.steps.replay import Play, run, span
from whichrank.timeline.steps.stragglers import Late

LEAST = 0.01
"""Gains below this share of the step are not worth a word."""
TRUSTED = 0.05
"""A replay that misses the recorded time by more than this says little about other times."""


class Scene(NamedTuple):
    """What advice is worked out from."""

    matched: Matched
    play: Play | None
    recorded: float | None
    """The replay of what was recorded."""
    error: float
    """How far that is from the truth, as a share."""
    steps: int
    step_ns: float
    late: Sequence[Late]
    collectives: Sequence[CollectiveShare]
    backward: Backward | None = None
    """DDP's backward pass, where the recording tells of its gradients."""


def gain_of(scene: Scene, play: Play | None) -> float | None:
    """Microseconds per step that the changed play is shorter by."""
    if play is None or scene.recorded is None:
        return None
    changed = span(run(play))
    return None if changed is None else max(0.0, scene.recorded - changed) / scene.steps / 1e3


def sure(scene: Scene, confidence: float) -> float:
    return round(confidence if scene.error <= TRUSTED else confidence / 2, 2)

"""Whether confidences are what they say, on all recorded evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.lab import truth
from whichrank.lab.scoreboard import unpacked

SAMPLES = Path(__file__).parents[1] / "samples"
CORPORA = (
    "drills_nccl.tar.xz",
    "nccl_faults.tar.gz",
    "recorded_cases.tar.xz",
    "logs_round_2.tar.xz",
    "logs_round_3.tar.xz",
)
SURE, RIGHT = 0.8, 0.9


@pytest.mark.bars
def test_what_is_said_to_be_sure_is_right():
    sure, right, modest = 0, 0, []
    for name in CORPORA:
        with unpacked(SAMPLES / name) as folder:
            for file in sorted(folder.rglob("truth.yaml")):
                known, verdict = truth.read(file), diagnose([file.parent], jobs=1).verdict
                good = verdict.cause in (known.cause, *known.accept)
                sure += verdict.confidence >= SURE
                right += good and verdict.confidence >= SURE
                modest += [verdict.confidence] if verdict.confidence < SURE and verdict.cause != "unknown" else []
    assert right >= RIGHT * sure > 0
    assert len(modest) < sure, "most recorded faults are proven or well supported"

"""Lines of `key=value` loggers: who speaks, when, and the words."""

from __future__ import annotations

import pytest

from whichrank.evidence.text.prefixes import Clock, listen


@pytest.mark.parametrize(
    ("line", "rank", "host", "text"),
    [
        (
            'ts=2026-01-02T10:00:00Z level=info rank=3 host=a-1 msg="epoch done" epoch=0 batches=12',
            3,
            "a-1",
            "epoch done epoch=0 batches=12",
        ),
        (
            'time=2026-01-02T10:00:00.1Z level=WARN msg="get \\"x\\" failed" rank=0 attempt=2/8',
            0,
            None,
            'get "x" failed attempt=2/8',
        ),
        ("level=info global_rank=12 step=40 loss=2.1", 12, None, "step=40 loss=2.1"),
    ],
)
def test_the_pairs_that_say_who_are_taken_off(line, rank, host, text):
    voice = listen(line.encode(), Clock(0))
    assert (voice.rank, voice.host, voice.text) == (rank, host, text)
    assert (voice.time_ns is not None) is line.startswith(("ts", "time"))


@pytest.mark.parametrize(
    "line",
    [
        "time=12.3 ms per step, 4 GPUs",
        "level=info only words",
        "t=3",
        'ts=2026-01-02T10:00:00Z msg="not closed rank=3 level=info',
        "time=1 " + "a=" * 5000,
    ],
)
def test_other_lines_stay_as_they_are(line):
    voice = listen(line.encode(), Clock(0))
    assert (voice.rank, voice.text) == (None, line)

"""Lines of `key=value` loggers, and dates as loggers write them: who speaks, when, and the words."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock


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


@pytest.mark.parametrize(
    ("line", "rank", "text"),
    [
        ("03/06/2025 02:11:37 - INFO - sft.data - [rank 9] 777 batches", 9, "777 batches"),
        ("03/06/2025 02:11:37 - INFO - timing - [rank 8] fetch 0.4s", 8, "fetch 0.4s"),
        ("[03/06/25 02:11:37] INFO     [rank 3] loading", 3, "loading"),
        ("2025-03-06 02:11:37,024: rank11[5811][MainThread]: WARNING: nan: x", 11, "WARNING: nan: x"),
    ],
)
def test_dates_of_loggers(line, rank, text):
    voice = listen(line.encode(), Clock(0))
    assert (voice.rank, voice.text, voice.time_ns // 10**9) == (rank, text, 1741227097)


def test_a_month_that_does_not_exist_is_a_day():
    assert listen(b"25/12/2024 02:11:37 INFO x", Clock(0)).time_ns == 1735092697 * 10**9


@pytest.mark.parametrize(
    ("line", "day"),
    [
        ("08.03.2024 19:30:15 [rank 6] weiter", (2024, 3, 8)),
        ("[19-11-2026 12:59:11] [rank 6] weiter", (2026, 11, 19)),
        ("11-19-2026 12:59:11 [rank 6] on", (2026, 11, 19)),
        ("2024-06-18,08:01:12 | INFO | [rank 6] on", (2024, 6, 18)),
        ("03:40:07.671Z [rank 6] on", None),
        ("192.168.20.24 19:30:15", None),
    ],
)
def test_dates_of_other_places(line, day):
    voice = listen(line.encode(), Clock(0))
    told = None if voice.time_ns is None else datetime.fromtimestamp(voice.time_ns / 1e9, timezone.utc)
    assert (None if told is None else (told.year, told.month, told.day)) == day


@pytest.mark.parametrize(("rank", "known"), [("3", 3), ("-1", None), ("99999999999", None), ("9" * 4000, None)])
def test_a_record_that_tells_no_rank(rank, known):
    assert listen(f'{{"rank": {rank}, "step": 7}}'.encode(), Clock(0)).rank == known

"""What a person quotes inside a sentence, and what the person only speaks of."""

from __future__ import annotations

import pytest

from whichrank.evidence.text.quotations import set_off

MESSAGE = "received 0 items of ancdata"


@pytest.mark.parametrize(
    "line",
    [
        f"**Error**: `RuntimeError: {MESSAGE}` raised during validation",
        f'the log says "{MESSAGE}" and stops',
        f"it says “{MESSAGE}” on two ranks",
        f"I get RuntimeError: {MESSAGE} in the second epoch",
        f"> {MESSAGE}...",
    ],
)
def test_quoted(line):
    start = line.index(MESSAGE)
    assert set_off(line, start, start + len(MESSAGE))


@pytest.mark.parametrize(
    "line",
    [
        f"it can't be that we {MESSAGE} as in the other ticket, isn't it",
        f"# {MESSAGE}",
        f"`num_workers` is 4, and people report {MESSAGE} for `fork`",
    ],
)
def test_spoken_of(line):
    start = line.index(MESSAGE)
    assert not set_off(line, start, start + len(MESSAGE))

"""Damaged evidence through every reader, damaged frames through the protocol; `tools/attack.py` goes on for hours."""

from __future__ import annotations

import pytest

from tests import cost
from tools.attack import attack


def test_nothing_escapes_from_readers_and_protocol() -> None:
    result = attack(seconds=8, seed=20261116, executions=3000, packed_too=False)
    assert result.executions["protocol"] > 100
    assert len(result.executions) > 12
    assert result.refused
    assert result.worst_s < 10 * max(1.0, cost.pace())


@pytest.mark.bars
def test_nothing_escapes_for_ten_minutes() -> None:
    assert attack(seconds=600, seed=7).total > 100_000

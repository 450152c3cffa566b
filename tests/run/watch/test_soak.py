"""Three minutes of a healthy job with every kind of pause: no alarm is confirmed, and nothing is told."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]
TOOLS = Path(__file__).parents[3] / "tools"


@pytest.mark.bars
def test_a_healthy_job_of_three_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    from soak import soak

    monkeypatch.setenv("PYTHONPATH", str(TOOLS.parent / "src"))
    result = soak(100, tmp_path)
    sys.modules.pop("soak", None)
    assert result.healthy, (result.alarms, result.told)
    assert result.told == ""
    assert result.levels["suspect"] <= 1, result.alarms

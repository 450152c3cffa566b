"""A job that becomes slower is slow, one that tells the same step again and again stands: by its own lines alone."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose

BEGIN = datetime(2026, 11, 19, 12, 0, tzinfo=timezone.utc)


def judged(folder: Path, rows: list[dict[str, object]]) -> tuple[str, str, tuple[int, ...]]:
    (folder / "job.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdict = diagnose([folder], jobs=1).verdict
    return verdict.category, verdict.cause, verdict.culprits.ranks


def at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


@pytest.mark.parametrize(("factor", "category"), [(2.0, "slow"), (1.1, "healthy")])
def test_steps_that_take_longer_to_the_end(tmp_path, factor, category):
    times = [60.0 * n if n <= 10 else 600 + 60 * factor * (n - 10) for n in range(21)]
    rows = [{"ts": at(t), "rank": 0, "step": 100 * n, "loss": 2 - n / 50} for n, t in enumerate(times)]
    assert judged(tmp_path, rows)[0] == category


def test_a_few_slow_steps_are_no_slow_job(tmp_path):
    times = [60.0 * n + (300 if n > 12 else 0) for n in range(21)]
    rows = [{"ts": at(t), "rank": 0, "step": 100 * n, "loss": 2 - n / 50} for n, t in enumerate(times)]
    assert judged(tmp_path, rows)[0] == "healthy"


def beats(stand: int, phases: dict[int, str]) -> list[dict[str, object]]:
    """Of four ranks every 30 s, ten steps apart, until they stand."""
    rows: list[dict[str, object]] = []
    for n in range(30):
        for rank in range(4):
            phase = "grad_sync" if (n + rank) % 2 else "forward"
            row = {"ts": at(30 * n + rank), "rank": rank, "step": 10 * min(n, stand)}
            rows.append(row | {"phase": phases.get(rank, "grad_sync") if n >= stand else phase})
    return rows


def test_the_rank_that_tells_another_state_while_all_stand(tmp_path):
    found = judged(tmp_path, beats(15, {2: "next_batch"}))
    assert found == ("hang", "rank-stuck-in-data-loading", (2,))


def test_beats_of_a_job_that_moves(tmp_path):
    assert judged(tmp_path, beats(29, {}))[0] == "healthy"

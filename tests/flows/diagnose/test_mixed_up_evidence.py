"""Logs of recorded cases, cut, turned round and mixed: whatever is asked of them, nothing in whichrank fails."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.evidence_at import unpacked
from whichrank.flows.diagnose.pipeline import diagnose

LARGEST = 300_000
MIXTURES = 80


@pytest.fixture(scope="module")
def cases() -> list[Path]:
    logs = [unpacked(f"logs_round_{number}.tar.xz") / "logs" for number in (1, 2, 3)]
    return [case for folder in logs for case in sorted(folder.iterdir()) if case.is_dir()]


def _mixed(rng: random.Random, cases: list[Path], folder: Path) -> None:
    for case in rng.sample(cases, rng.choice((1, 2))):
        for path in sorted(case.rglob("*")):
            if path.is_file() and path.name != "truth.yaml" and path.stat().st_size < LARGEST and rng.random() < 0.75:
                lines = path.read_bytes().split(b"\n")
                for _ in range(rng.randrange(3)):
                    begin, end = sorted(rng.choices(range(len(lines) + 1), k=2))
                    parts = lines[:begin], lines[begin:end], lines[end:]
                    lines = rng.choice((parts[0] + parts[2], parts[1], parts[0] + parts[2] + parts[1]))
                target = folder / path.relative_to(case)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(b"\n".join(lines))


def _look(seeds: range, cases: list[Path], folder: Path) -> None:
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        _mixed(random.Random(seed), cases, place)
        diagnosis = diagnose([place], jobs=1)
        assert not [skipped for skipped in diagnosis.coverage.not_evaluated if skipped.failed], seed


def test_nothing_fails(cases, tmp_path, monkeypatch):
    monkeypatch.delenv("WHICHRANK_DEBUG", raising=False)
    _look(range(MIXTURES), cases, tmp_path)


@pytest.mark.bars
def test_nothing_fails_in_thousands(cases, tmp_path, monkeypatch):
    monkeypatch.delenv("WHICHRANK_DEBUG", raising=False)
    _look(range(MIXTURES, 8_000), cases, tmp_path)

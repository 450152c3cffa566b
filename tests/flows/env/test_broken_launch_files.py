"""Launch files with lines lost, doubled, mixed and mistyped: they are read in a bounded time, and nothing fails."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from whichrank.flows.env.lint import lint, read_path

SAMPLES = Path(__file__).parents[2] / "samples"
FILES = [path for name in ("launch_held_out", "launch_labelled") for path in sorted((SAMPLES / name).iterdir())]
MARKS = ('"', "'", "$", "{", "}", "(", ")", "\\", "`", ":", "=", "-", "&", "*", "")
BROKEN = 150
LONGEST_S = 5.0


def _broken(rng: random.Random, lines: list[str], others: list[str]) -> list[str]:
    for _ in range(rng.randrange(1, 5)):
        begin = rng.randrange(len(lines) + 1)
        end = begin + rng.randrange(1, 8)
        change = rng.randrange(5)
        if change == 0:
            lines = lines[:begin] + lines[end:]
        elif change == 1:
            lines = lines[:begin] + [f"  {line}" for line in lines[begin:end]] + lines[end:]
        elif change == 2:
            lines = lines + lines[begin:end]
        elif change == 3:
            at = rng.randrange(len(others))
            lines = lines[:begin] + others[at : at + 9] + lines[begin:]
        elif begin < len(lines) and lines[begin]:
            at = rng.randrange(len(lines[begin]))
            lines[begin] = lines[begin][:at] + rng.choice(MARKS) + lines[begin][at + rng.randrange(2) :]
    return lines


def _look(seeds: range, folder: Path) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        path, other = (rng.choice([path for path in FILES if path.is_file()]) for _ in range(2))
        lines, others = (p.read_text(encoding="utf-8", errors="replace").split("\n") for p in (path, other))
        target = folder / path.name
        target.write_text("\n".join(_broken(rng, lines, others)), encoding="utf-8")
        began = time.process_time()
        coverage = lint(read_path(target)).coverage
        assert time.process_time() - began < LONGEST_S, seed
        assert not [skipped for skipped in coverage.not_evaluated if skipped.failed], seed


def test_nothing_fails(tmp_path, monkeypatch):
    monkeypatch.delenv("WHICHRANK_DEBUG", raising=False)
    _look(range(BROKEN), tmp_path)


@pytest.mark.bars
def test_nothing_fails_in_thousands(tmp_path, monkeypatch):
    monkeypatch.delenv("WHICHRANK_DEBUG", raising=False)
    _look(range(BROKEN, 20_000), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        'services: &all\n  a: &a {image: x, command: "torchrun --nproc-per-node=8 t.py"}\n'
        + "".join(
            f"  {name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
            for before, name in zip("abcde", "bcdef", strict=True)
        ),
        'x: &x\n  b:\n    command: ["torchrun", "--nproc-per-node=8", "t.py"]\n    c: *x\n    d: *x\n    e: *x\n',
    ],
    ids=["aliases of aliases", "aliases of what is around them"],
)
def test_aliases_cost_a_bounded_time(tmp_path, text):
    path = tmp_path / "compose.yml"
    path.write_text(text)
    began = time.process_time()
    lint(read_path(path))
    assert time.process_time() - began < LONGEST_S


def test_a_loop_without_a_list_in_a_condition(tmp_path):
    path = tmp_path / "train.sh"
    path.write_text('if for host; do ping "$host"; done; then\n  export NCCL_DEBUG=WARN\nfi\ntorchrun t.py\n')
    assert not lint(read_path(path)).findings

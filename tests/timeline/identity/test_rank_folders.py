"""Outputs in torchrun's folders, one per rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose


def judged(folder: Path, *hosts: str) -> tuple[int, ...]:
    """Who is named, where the loss of local rank 2 turns before those of the others."""
    for host in hosts:
        for local in range(4):
            path = folder / host / "attempt_0" / str(local) / "stderr.log"
            path.parent.mkdir(parents=True)
            turned = 40 if local == 2 else 60
            lines = [
                f"12:00:{step // 10:02} site {local}: step {step} local loss {'nan' if step >= turned else 0.5}\n"
                for step in range(0, 100, 10)
            ]
            path.write_text("".join(lines))
    return diagnose([folder], jobs=1).verdict.culprits.ranks


def test_of_one_host_the_local_number_is_the_rank(tmp_path):
    assert judged(tmp_path, "run_a") == (2,)


def test_of_several_hosts_it_is_not(tmp_path):
    assert judged(tmp_path, "node_a", "node_b") == ()


@pytest.mark.parametrize("shift", [1, 4])
def test_lines_that_name_another_rank_are_believed(tmp_path, shift):
    for local in range(4):
        path = tmp_path / "run" / "attempt_0" / str(local) / "stderr.log"
        path.parent.mkdir(parents=True)
        turned = 40 if local == 2 else 60
        rank = local + shift
        steps = "".join(f"rank {rank} step {n} local loss {'nan' if n >= turned else 0.5}\n" for n in range(0, 100, 10))
        path.write_text(steps)
    assert diagnose([tmp_path], jobs=1).verdict.culprits.ranks in ((), (2 + shift,))


def test_timers_that_do_not_name_their_rank(tmp_path):
    for local in range(4):
        path = tmp_path / "run" / "attempt_0" / str(local) / "stdout.log"
        path.parent.mkdir(parents=True)
        work, wait = (380, 40) if local == 1 else (28, 390)
        path.write_text(
            "".join(f"step {n} loss 0.5 | augment {work + n % 3}ms allreduce {wait}ms\n" for n in range(10, 60, 10))
        )
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("straggler", (1,))


def test_the_first_rank_whose_own_value_is_not_finite(tmp_path):
    for local in range(3):
        path = tmp_path / "run" / "attempt_0" / str(local) / "stdout.log"
        path.parent.mkdir(parents=True)
        turned = 57 if local == 2 else 58
        path.write_text(
            "".join(
                f"step {n} local residual {'nan' if n >= turned else 0.003} mean grad norm {'nan' if n > 56 else 0.1}\n"
                for n in range(50, 65)
            )
        )
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("nan-origin", (2,))

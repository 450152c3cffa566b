"""whichrank's own lines in a job's output are no evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose

GOOD = "".join(f"step {n} loss {2.0 / (n + 1):.3f}\n" for n in range(30)) + "Training finished after 30 steps\n"


@pytest.mark.parametrize("before", ["", "2026-11-15T10:00:00Z stderr F ", "worker-0 | ", "0: "])
def test_its_own_trouble_is_not_the_jobs(tmp_path: Path, before: str) -> None:
    """A full disk under --out was reported as the job's."""
    trouble = (
        "whichrank: can't write /out/run.json: No space left on device; the job goes on\n"
        "whichrank: can't keep the evidence (OSError: [Errno 28] No space left on device); the job goes on\n"
        "whichrank: the leader node7 is not heard any more: Connection reset by peer\n"
    )
    (tmp_path / "job.log").write_text(GOOD + "".join(before + line + "\n" for line in trouble.splitlines()))
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert verdict.category in ("healthy", "unknown"), verdict
    assert verdict.cause != "disk-full"


def test_the_jobs_own_trouble_is(tmp_path: Path) -> None:
    log = (
        "whichrank: watching\nTraceback (most recent call last):\n"
        '  File "/srv/train.py", line 12, in save\n    torch.save(state, path)\n'
        "OSError: [Errno 28] No space left on device: '/scratch/ckpt/step_4000.pt'\n"
    )
    (tmp_path / "job.log").write_text(log)
    assert diagnose([tmp_path], jobs=1).verdict.cause == "disk-full"

"""Callbacks in real two-rank jobs of each trainer: phases and steps are marked, its own error carries the verdict."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.watched import Done, environment, forked, free_port, run, whichrank

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent / "trainers"
TRAINERS = ("accelerate", "lightning", "transformers", "ray")
PHASES = {"data loading", "forward", "backward", "checkpoint", "evaluation"}
STEPS = 8
LIMIT_S = 600


def each(quick: str = "") -> list[object]:
    """The trainers; those that take long, or are not part of `make install`, are for `make bars`."""
    return [
        pytest.param(
            name,
            marks=[
                *([] if name == quick else [pytest.mark.bars]),
                pytest.mark.timeout(2 * LIMIT_S),
                pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed"),
            ],
        )
        for name in TRAINERS
    ]


def torchrun(world: int, script: str, *arguments: object) -> list[str]:
    launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={world}", f"--master_port={free_port()}"]
    return [sys.executable, *launcher, str(HERE / script), *map(str, arguments)]


def shared(world: int, script: str, *arguments: object) -> list[str]:
    """For the quick trainer: its ranks share one import."""
    preload = ("--preload", "torch._dynamo", "--preload", "accelerate", "--patience", "10")
    return forked(HERE / script, *arguments, world=world, options=preload)


def job(trainer: str, mode: str, out: Path) -> Done:
    script = f"{trainer}_job.py"
    if trainer == "ray":
        command = [sys.executable, str(HERE / script), mode]
    else:
        # In `make test` the ranks share one import; in `make bars` accelerate runs under its usual launcher.
        quick = trainer == "accelerate" and mode == "crash"
        command = shared(2, script, mode) if quick else torchrun(2, script, mode)
    return run(command, out, limit_s=LIMIT_S)


@pytest.mark.parametrize("trainer", each(quick="accelerate"))
def test_an_error_of_a_rank_that_lost_its_peer_says_who_failed_first(trainer: str, tmp_path: Path) -> None:
    done = job(trainer, "crash", tmp_path / "out")
    told = done.stdout + done.stderr
    assert done.code != 0
    assert "whichrank: the verdict follows when the job has ended" in told  # what rank 1 can know itself
    if trainer == "ray":  # it ends the other worker itself, whose error nobody sees
        assert "sample 17 of shard 3" in (tmp_path / "out" / "verdict.json").read_text()
        return
    first = re.search(r"whichrank: rank 1 failed before this one: ValueError: sample 17 of .* \(at (.*)\)", told)
    assert first, told
    assert re.search(r"common\.py:\d+ go_wrong", first.group(1))
    assert (done.verdict["cause"], done.verdict["culprits"]["ranks"]) == ("rank-exception", [1])
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.bars
@pytest.mark.parametrize("trainer", each())
def test_steps_and_phases_are_marked(trainer: str, tmp_path: Path) -> None:
    done = job(trainer, "fine", tmp_path / "out")
    # Ray may print what a worker says twice, on both outputs.
    seen = set(re.findall(r"SEEN rank (\d) steps (\d+) phases (\[.*\])", done.stdout + done.stderr))
    assert sorted(rank for rank, _, _ in seen) == ["0", "1"], done.stderr
    assert {int(steps) for _, steps, _ in seen} == {STEPS}
    phases = [set(json.loads(told.replace("'", '"'))) for _, _, told in seen]
    # One rank saves for all, and with Ray the upload is the controller's.
    assert all(each >= PHASES - {"checkpoint"} for each in phases)
    assert trainer == "ray" or "checkpoint" in set().union(*phases)


@pytest.mark.bars
@pytest.mark.parametrize("trainer", each())
def test_the_error_of_a_hang_carries_the_verdict(trainer: str, tmp_path: Path) -> None:
    """Gloo gives up after a minute; the verdict is there before."""
    done = job(trainer, "hang", tmp_path / "out")
    words = done.document("bundle/last_words.json")["processes"]
    stuck = next(row for row in words if row["rank"] == 1)
    assert stuck["activity"] == "data loading"
    assert stuck["step"] in (3, 4)  # Accelerate's loaders, which the Trainer uses too, fetch one batch ahead
    assert done.verdict["culprits"]["ranks"] == [1]
    note = re.search(r"whichrank: (.*)\(([a-z-]+), \d+ % sure\)", done.stdout + done.stderr, re.DOTALL)
    assert note, done.stderr
    assert note.group(2) == done.verdict["cause"]


@pytest.mark.parametrize("trainer", [each_one for each_one in each(quick="accelerate") if each_one.values[0] != "ray"])
@pytest.mark.parametrize("mode", ["flip", pytest.param("fine", marks=pytest.mark.bars)])
def test_the_guard_of_a_trainer_names_the_replica(trainer: str, mode: str, tmp_path: Path) -> None:
    records = tmp_path / "guard"
    asked = ("guarded_job.py", trainer, mode, records)
    command = (shared if trainer == "accelerate" else torchrun)(3, *asked)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    judged = subprocess.run(
        whichrank("guard", "--format", "json", records), env=environment(), capture_output=True, text=True, check=False
    )
    document = json.loads(judged.stdout)
    assert document["compared"]["slices"] > 0, document
    if mode == "fine":
        assert (judged.returncode, document["findings"]) == (0, []), judged.stdout
        return
    verdict = document["verdict"]
    assert (verdict["cause"], verdict["culprits"]["ranks"]) == ("replica-divergence", [1]), judged.stdout
    assert verdict["certificate"][0]["module"].endswith("body.weight")
    if trainer != "accelerate":  # which saves nothing by itself
        assert document["checkpoints"], document

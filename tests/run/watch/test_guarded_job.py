"""`whichrank run --guard` on real jobs: the rank is named, the job is ended if asked, and nothing changes otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
import contextlib, gc, os, sys, time
gc.disable()  # while much is imported that stays
import torch, torch._dynamo, torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
gc.enable()
torch.set_num_threads(1)
mode, steps = sys.argv[1], int(sys.argv[2])

def rank_main(rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    dist.init_process_group("gloo", rank=rank, world_size=3)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    def inputs_of(number):
        return torch.randn(8, 16, generator=torch.Generator().manual_seed(99 * rank + number))

    if mode == "joined":
        for epoch in range(2):
            with Join([model]):
                for number in range(steps - 4 * rank):
                    optimizer.zero_grad()
                    model(inputs_of(number)).pow(2).mean().backward()
                    optimizer.step()
        steps_left = 0
    elif mode == "accumulated":
        for step in range(steps):
            optimizer.zero_grad()
            for part in range(3):
                inputs = inputs_of(3 * step + part)
                if rank == 1 and step == 6 and part == 1:
                    inputs[2, 3] = float("nan")
                with model.no_sync() if part < 2 else contextlib.nullcontext():
                    model(inputs).pow(2).mean().backward()
            optimizer.step()
            time.sleep(0.05)
        steps_left = 0
    else:
        steps_left = steps
    for step in range(steps_left):
        inputs = inputs_of(step)
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()
        if mode == "flip" and rank == 1 and step == 5:
            model.module[0].weight.data.view(torch.int32)[3, 4] ^= 1 << 12
        if step == 1 and rank == 0:
            torch.save(model.module.state_dict(), sys.argv[3] + "/early.pt")
        time.sleep(0.05 if mode == "flip" else 0.0)
    digest = sum(p.double().sum().item() for p in model.parameters())
    os.write(1, f"final {rank} {digest!r} {torch.rand(1).item()!r}\\n".encode())
    dist.destroy_process_group()

if __name__ == "__main__":
    children = []
    for rank in range(3):
        child = os.fork()
        if child == 0:
            rank_main(rank)
            import atexit
            atexit._run_exitfuncs()
            os._exit(0)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children))
"""


def run(tmp_path: Path, *options: str, mode: str, steps: int) -> subprocess.CompletedProcess[str]:
    from whichrank.lab.setup import free_port

    script = tmp_path / "train.py"
    script.write_text(JOB)
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1",
                   "WHICHRANK_GUARD_EVERY": "1", "WHICHRANK_HISTORY": "off"}  # fmt: skip
    command = [sys.executable, "-m", "whichrank", "run", "--out", str(tmp_path / "out"), *options, "--", sys.executable,
               str(script), mode, str(steps), str(tmp_path)]  # fmt: skip
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)


def test_a_flipped_bit_is_named_and_the_job_is_ended(tmp_path):
    done = run(tmp_path, "--guard", "--guard-stop", mode="flip", steps=2000)
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())["verdict"]
    assert verdict["cause"] == "replica-divergence"
    assert verdict["culprits"]["ranks"] == [1]
    first = verdict["certificate"][0]
    assert (first["rank"], first["module"], first["tensor"]) == (1, "0.weight", "parameter")
    assert 5 <= first["step"] <= 7
    assert "early.pt" in verdict["fix"][0]
    assert "as asked by --guard-stop" in done.stderr
    assert done.returncode != 0
    alarms = json.loads((tmp_path / "out" / "run.json").read_text())["alarms"]
    assert alarms[0]["level"] == "wrong"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """A healthy job with the guard: its folder, and how it ended."""
    folder = tmp_path_factory.mktemp("healthy")
    return folder, run(folder, "--guard", mode="healthy", steps=30)


@pytest.mark.slow
def test_a_healthy_job_gives_the_same_bits_with_the_guard_and_without(healthy, tmp_path):
    with_guard, guarded = healthy
    plain = run(tmp_path, mode="healthy", steps=30)
    assert (guarded.returncode, plain.returncode) == (0, 0), guarded.stderr + plain.stderr
    finals = [
        sorted(line for line in each.stdout.splitlines() if line.startswith("final")) for each in (guarded, plain)
    ]
    assert finals[0] == finals[1]
    assert len(finals[0]) == 3
    assert "nothing differs that should be equal" in guarded.stderr
    assert not (with_guard / "out" / "verdict.json").exists()
    assert len(list((with_guard / "out" / "guard").glob("rank_*.guard.jsonl"))) == 3


def test_compare_finds_nothing_between_a_run_and_itself(healthy):
    folder, done = healthy
    records = folder / "out" / "guard"
    assert records.is_dir(), done.stderr
    command = [sys.executable, "-m", "whichrank", "compare", str(records), str(records), "--format", "json"]
    same = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert same.returncode == 0
    assert json.loads(same.stdout)["differences"] == []
    judged = subprocess.run(
        [sys.executable, "-m", "whichrank", "guard", str(records)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout
    assert "Nothing wrong found" in judged.stdout


def test_ranks_that_step_different_numbers_of_times_are_not_compared(tmp_path):
    """Within `Join` replicas differ until it ends, and the same step of two ranks is not the same moment."""
    done = run(tmp_path, "--guard", mode="joined", steps=16)
    assert done.returncode == 0, done.stderr
    assert "is off: the ranks step different numbers of times" in done.stderr
    assert not (tmp_path / "out" / "verdict.json").exists()


def test_a_nan_in_an_earlier_micro_batch_is_not_blamed_on_the_gpu(tmp_path):
    """The last micro-batch alone, computed again, does not give the sum of three."""
    run(tmp_path, "--guard", mode="accumulated", steps=40)
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())["verdict"]
    assert (verdict["cause"], verdict["culprits"]["ranks"]) == ("nan-origin", [1])

"""The steps of the optimizers are counted, and the job does not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run import watched

pytestmark = pytest.mark.slow
TRAINING = """
import os, pathlib, sys, time, torch, torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
own, rank, done = [], int(os.environ["RANK"]), pathlib.Path(sys.argv[1])
kind = sys.argv[2 + rank]
if kind == "hooked":
    register_optimizer_step_post_hook(lambda *_: own.append(1))
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters())
step = torch.compile(optimizer.step, backend="eager") if kind == "compiled" else optimizer.step
time.sleep(1.5)  # the hook looks twice a second
for _ in range(25):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    dist.all_reduce(model.weight.grad)
    step()
time.sleep(1.5)
os.write(1, f"{kind} {len(own)} {int(optimizer.state[model.weight]['step'])}\\n".encode())
if rank == 0:
    done.touch()
    raise SystemExit(0)
while not done.exists():
    time.sleep(0.1)
raise SystemExit(3)
"""


@pytest.mark.parametrize(
    ("kinds", "hooks", "counted"),
    # Whose hook comes first, the job's or ours, is a matter of luck: where it is the job's, there is none of ours.
    [
        (("plain", "compiled"), 0, ((25,), (None, 25))),
        pytest.param(("hooked", "hooked"), 25, ((None, 25), (None, 25)), marks=pytest.mark.bars),
    ],
)
def test_steps_of_optimizers(
    tmp_path: Path, kinds: tuple[str, ...], hooks: int, counted: tuple[tuple[int | None, ...], ...]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    command = watched.forked(script, tmp_path / "done", *kinds, world=2, options=("--preload", "torch._dynamo"))
    done = watched.run(command, tmp_path / "out", "--no-history")
    assert (done.code, sorted(done.stdout.splitlines())) == (3, sorted(f"{kind} {hooks} 25" for kind in kinds)), done
    words = done.document("bundle/last_words.json")["processes"]
    steps = {process["rank"]: process["step"] for process in words if process["rank"] in (0, 1)}
    assert all(steps[rank] in counted[rank] for rank in (0, 1)), steps

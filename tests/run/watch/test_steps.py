"""The steps of the optimizers are counted, and the job does not notice."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.run import watched

pytestmark = pytest.mark.slow
TRAINING = """
import sys, time, torch, torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
own = []
if sys.argv[1] == "hooked":
    register_optimizer_step_post_hook(lambda *_: own.append(1))
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters())
step = torch.compile(optimizer.step, backend="eager") if sys.argv[1] == "compiled" else optimizer.step
time.sleep(1.5)  # the hook looks twice a second
for _ in range(25):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    dist.all_reduce(model.weight.grad)
    step()
time.sleep(1.5)
print(len(own), int(optimizer.state[model.weight]["step"]))
raise SystemExit(3)
"""


@pytest.mark.parametrize(
    ("kind", "printed", "counted"),
    # Whose hook comes first, the job's or ours, is a matter of luck: where it is the job's, there is none of ours.
    [
        ("plain", "0 25\n", (25,)),
        pytest.param("hooked", "25 25\n", (None, 25), marks=pytest.mark.bars),
        ("compiled", "0 25\n", (None, 25)),
    ],
)
def test_steps_of_optimizers(tmp_path: Path, kind: str, printed: str, counted: tuple[int | None, ...]) -> None:
    done = watched.run([sys.executable, "-c", TRAINING, kind], tmp_path, "--no-history")
    assert (done.code, done.stdout) == (3, printed), done.stderr
    (rank,) = json.loads((tmp_path / "bundle" / "last_words.json").read_text())["processes"]
    assert rank["step"] in counted

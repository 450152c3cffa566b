"""How a drill's job is started; a fault may change it before."""

from __future__ import annotations

import os
import random
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from whichrank.lab.catalogue import HERE, Fault
from whichrank.lab.workloads.plan import FOLDER, Plan

FORK_ABOVE = 8
"""More ranks than this are forked from one parent: importing torch once per rank would take minutes."""


@dataclass(slots=True)
class Setup:
    """The command, its environment, and what the drill waits for."""

    folder: Path
    plan: Plan
    launcher: Literal["torchrun", "fork"]
    environment: dict[str, str] = field(default_factory=dict)
    rank_variables: dict[int, dict[str, str]] = field(default_factory=dict)
    """What single ranks are started with besides; by torchrun only."""
    prefix: list[str] = field(default_factory=list)
    """Before the launcher's command, as `prlimit` would stand."""
    launcher_options: list[str] = field(default_factory=lambda: ["--standalone"])
    processes: int = 0
    """How many ranks the launcher starts; the world, unless a fault wants others."""
    limit_s: float = 150.0
    """The drill is ended after this."""
    shared: dict[str, Any] = field(default_factory=dict)
    """For the fault's own use between its functions."""

    def command(self) -> list[str]:
        script = str(self.folder / "code" / "train.py")
        if self.launcher == "fork":
            return [*self.prefix, sys.executable, script]
        options = [*self.launcher_options, "--nproc-per-node", str(self.processes)]
        program = [script]
        if self.rank_variables:
            options, program = [*options, "--no-python"], ["sh", str(self.write_wrapper()), sys.executable, script]
        return [*self.prefix, sys.executable, "-m", "torch.distributed.run", *options, *program]

    def write_wrapper(self) -> Path:
        """A script as users write it: some variables for some ranks, then the program."""
        path = self.folder / "code" / "rank.sh"
        cases = [
            f"{rank}) export {' '.join(f'{name}={value}' for name, value in variables.items())} ;;"
            for rank, variables in self.rank_variables.items()
        ]
        path.write_text("\n".join(['case "$RANK" in', *cases, "esac", 'exec "$@"', ""]), encoding="utf-8")
        return path

    def variables(self) -> dict[str, str]:
        """The environment of the job: this process's own, less what would leak into the drill."""
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("TORCH_", "NCCL_", "GLOO_", "WHICHRANK"))}
        own = {FOLDER: str(self.folder), "TMPDIR": str(self.folder / "tmp"), "OMP_NUM_THREADS": "1"}
        own |= {"WHICHRANK_HISTORY": "off", "PYTHONUNBUFFERED": "1"}
        if self.launcher == "fork":
            own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(self.plan.world)}
        return {**inherited, **own, **self.environment}


def prepare(folder: Path, fault: Fault, plan: Plan, launcher: Literal["torchrun", "fork"] | None = None) -> Setup:
    """The fault's say included."""
    chosen = launcher or ("fork" if plan.world > FORK_ABOVE else "torchrun")
    setup = Setup(folder, plan, chosen, processes=plan.world)
    launch = fault.hook("launch")
    if launch is not None:
        launch(setup)
    write_code(folder, fault, setup.plan)
    return setup


def write_code(folder: Path, fault: Fault, plan: Plan) -> None:
    """The job as a user's own program: it needs torch and nothing of this package."""
    import json

    code = folder / "code"
    inside = code / "training"
    inside.mkdir()
    for file in (HERE / "workloads").glob("*.py"):
        text = file.read_text(encoding="utf-8").replace("whichrank.lab.workloads", "training")
        (inside / file.name).write_text(text, encoding="utf-8")
    (code / "train.py").write_text("from training.main import main\n\nmain()\n", encoding="utf-8")
    (code / "fault.py").write_text(fault.path.read_text(encoding="utf-8"), encoding="utf-8")
    (code / "workload").write_text(fault.workload, encoding="ascii")
    document = {"plan": plan._asdict(), "inside": fault.hook("inside") is not None}
    (folder / "plan.json").write_text(json.dumps(document), encoding="utf-8")


def free_port() -> int:
    """A port that nobody has: below torch's defaults (29400, 29500) and those that the kernel gives to clients."""
    while True:
        port = random.randrange(20_000, 29_000)  # noqa: S311 - no secret
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port

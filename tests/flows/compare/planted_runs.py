"""Two real runs that differ in one thing: each planting is a watched job of torch, and what `compare` must name first.

Run as a program it records all of them: python -m tests.flows.compare.planted_runs FOLDER [NAME...]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.run import watched

TRAIN = """
import argparse, os, sys, time
import torch, torch.distributed as dist
from helper import loss_of

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--data", default="data")
options = parser.parse_args()
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
weights = torch.ones(256)
for step in range(options.steps):
    if os.path.exists(f"{options.data}/slow.{rank}"):
        time.sleep(0.4)
    gradient = loss_of(weights, rank)
    dist.all_reduce(gradient)
    weights -= options.lr * gradient / dist.get_world_size()
    time.sleep(0.05)
dist.destroy_process_group()
"""
HELPER = """
def loss_of(weights, rank):
    return weights * 0.01 + rank
"""
WRAPPER = """#!/bin/sh
{plant}
exec {python} -u "$@"
"""


@dataclass
class Setup:
    """How one run is started."""

    folder: Path
    ranks: int = 2
    arguments: list[str] = field(default_factory=lambda: ["--lr", "0.1"])
    prefix: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=lambda: {"OMP_NUM_THREADS": "1"})
    policy: str = "report"
    for_one_rank: str = ""

    def write(self, name: str, text: str) -> None:
        path = self.folder / "train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, out: Path) -> None:
        """Run it for real, watched."""
        wrapper = self.folder / "python.sh"
        wrapper.write_text(WRAPPER.format(plant=self.for_one_rank, python=sys.executable))
        wrapper.chmod(0o755)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--no-python", f"--nproc_per_node={self.ranks}"]
        script = [
            str(wrapper),
            str(self.folder / "train" / "train.py"),
            "--data",
            str(self.folder / "data"),
            *self.arguments,
        ]
        command = [*launcher, "--master_port", str(watched.free_port()), *script]
        watch = watched.whichrank("run", "--no-history", "--quiet", "--policy", self.policy, "--out", out)
        subprocess.run(
            [*self.prefix, *watch, "--", *command], env=watched.environment(**self.variables), check=False,
            timeout=240, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


@dataclass(frozen=True)
class Planting:
    """What is changed in the second run, what it is called, and whether the first needs something of its own."""

    change: Callable[[Setup], None]
    first: str
    prepare: Callable[[Setup], None] = lambda setup: None
    """Both runs."""


def in_own_network(setup: Setup, mtu: int = 65536) -> None:
    setup.prefix = ["unshare", "-n", "sh", "-c", f'ip link set lo mtu {mtu} up; exec "$0" "$@"']


def with_package(setup: Setup, version: str) -> None:
    (setup.folder / "extra" / f"acme_data-{version}.dist-info").mkdir(parents=True)
    setup.variables["PYTHONPATH"] = f"{setup.folder / 'extra'}:{watched.environment()['PYTHONPATH']}"


def no_package(setup: Setup) -> None:
    setup.variables["PYTHONPATH"] = watched.environment()["PYTHONPATH"]


def skip_on_one(setup: Setup) -> None:
    setup.policy = "end"
    text = TRAIN.replace(
        "    dist.all_reduce(gradient)", "    if step != 12 or rank != 1:\n        dist.all_reduce(gradient)"
    )
    setup.write("train.py", text.replace("dist.destroy_process_group()", "time.sleep(300)"))


def slow_rank(setup: Setup) -> None:
    (setup.folder / "data").mkdir()
    (setup.folder / "data" / "slow.1").touch()


def longer(setup: Setup) -> None:
    setup.arguments = ["--lr", "0.1", "--steps", "60"]


SHM = 'mount -t tmpfs -o size=64m tmpfs /dev/shm; exec "$0" "$@"'
PLANTINGS = {
    "interface-setting": Planting(lambda s: s.variables.update(GLOO_SOCKET_IFNAME="lo"), "setting GLOO_SOCKET_IFNAME"),
    "misspelt-setting": Planting(lambda s: s.variables.update(NCCL_SOKET_IFNAME="eth0"), "setting NCCL_SOKET_IFNAME"),
    "threads": Planting(lambda s: s.variables.update(OMP_NUM_THREADS="8"), "setting OMP_NUM_THREADS"),
    "one-rank-differs": Planting(
        lambda s: setattr(s, "for_one_rank", '[ "$RANK" = 1 ] && export NCCL_ALGO=Ring'), "setting NCCL_ALGO"
    ),
    "open-files": Planting(
        lambda s: setattr(s, "prefix", ["sh", "-c", 'ulimit -Sn 512; exec "$0" "$@"']), "limit on open files"
    ),
    "shared-memory": Planting(
        lambda s: setattr(s, "prefix", ["unshare", "-m", "sh", "-c", SHM]), "size of /dev/shm, kB"
    ),
    "mtu": Planting(lambda s: in_own_network(s, 1500), "interface lo", prepare=in_own_network),
    "helper-changed": Planting(lambda s: s.write("helper.py", HELPER.replace("0.01", "0.1")), "code helper.py"),
    "learning-rate": Planting(lambda s: setattr(s, "arguments", ["--lr", "0.5"]), "argument --lr"),
    "more-ranks": Planting(lambda s: setattr(s, "ranks", 3), "number of ranks"),
    "package": Planting(lambda s: with_package(s, "2.1"), "version of acme-data", prepare=no_package),
    "pinned": Planting(lambda s: setattr(s, "prefix", ["taskset", "-c", "0"]), "CPUs of a rank"),
    "skipped-collective": Planting(skip_on_one, "code train.py"),
    "slow-rank": Planting(slow_rank, "rank 1", prepare=longer),
    "nothing": Planting(lambda s: None, ""),
}


def set_up(folder: Path) -> Setup:
    setup = Setup(folder)
    setup.write("train.py", TRAIN)
    setup.write("helper.py", HELPER)
    return setup


def record(name: str, into: Path) -> None:
    """Run both sides; what they leave goes to INTO/NAME/a and b."""
    planting = PLANTINGS[name]
    shutil.rmtree(into / name, ignore_errors=True)
    for side in ("a", "b"):
        folder = into / name / f"job-{side}"
        setup = set_up(folder)
        planting.prepare(setup)
        if side == "b":
            planting.change(setup)
        setup.run(into / name / side)
        shutil.rmtree(folder)


if __name__ == "__main__":
    for each in sys.argv[2:] or PLANTINGS:
        record(each, Path(sys.argv[1]))
        sys.stdout.write(f"{each}\n")

"""The kernel ends a rank whose control group is out of memory."""

from pathlib import Path

CAUSE = "host-out-of-memory"
CATEGORY = "crash"
WORKLOAD = "loader"
ENDING = "crash"
NEEDS = ("root",)
ROOT = Path("/sys/fs/cgroup/memory")


def launch(setup):
    group = ROOT / setup.folder.name
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(1 << 30))
    setup.shared["group"] = group


def outside(job):
    pid = job.await_step(job.plan.rank, 1)
    group = job.setup.shared["group"]
    (group / "cgroup.procs").write_text(str(pid))


def inside(rank, point, value):
    if point == "sample" and rank.guilty and rank.due:
        rank.strike()
        rank.cache = []
        while True:
            rank.cache.append(b"x" * (16 << 20))

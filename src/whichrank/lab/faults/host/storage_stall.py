"""The file system that one rank writes its metrics to takes no more writes."""

import subprocess
import time

CAUSE = "storage-stall"
CATEGORY = "hang"
WORKLOAD = "ddp"
NEEDS = ("mounts",)
ACCEPT = ("rank-frozen",)
MOUNT = "tmp/storage"


def launch(setup):
    """A file system of its own, in a file; a drill unmounts what is mounted below its folder."""
    mount, image = setup.folder / MOUNT, setup.folder / "tmp" / "image"
    mount.mkdir()
    image.touch()
    for command in (
        ["truncate", "-s", "16M", image],
        ["mkfs.ext4", "-q", image],
        ["mount", "-o", "loop", image, mount],
    ):
        subprocess.run(command, check=True, capture_output=True)


def inside(rank, point, value):
    if point == "metrics" and rank.guilty:
        append(rank.folder / MOUNT / "metrics.jsonl", value.tolist())


def append(path, numbers):
    with path.open("a", encoding="ascii") as stream:
        stream.write(f"{numbers}\n")


def outside(job):
    """Frozen, as for a snapshot that is not finished, until the verdict is there: nothing ends a process before."""
    job.await_step(job.plan.rank, job.plan.step)
    job.strike()
    subprocess.run(["fsfreeze", "--freeze", job.folder / MOUNT], check=True)
    try:
        while job.process.poll() is None and not (job.out / "verdict.json").exists():
            time.sleep(0.2)
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", job.folder / MOUNT], check=True)

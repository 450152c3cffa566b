"""A Slurm cluster of two nodes on this machine, without anything in /etc: for tests that need the real thing."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.run import watched

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue")
# On a busy machine its own limits of 2 to 10 s pass between two messages. A job that is queued again waits until its
# credentials have expired. All clusters run on this machine: a job is told by its number, so each counts from another.
CONFIGURATION = """\
ClusterName=lab
FirstJobId={first}
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={home}/run/munge.sock,cred_expire=30
MessageTimeout=100
TCPTimeout=60
BatchStartTimeout=200
CredType=cred/munge
SlurmctldPidFile={home}/run/slurmctld.pid
SlurmdPidFile={home}/run/slurmd.%n.pid
SlurmctldLogFile={home}/log/slurmctld.log
SlurmdLogFile={home}/log/slurmd.%n.log
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=0
KillWait=30
JobRequeue=1
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=lab Nodes=n[1-2] Default=YES MaxTime=INFINITE PriorityTier=1 State=UP
PartitionName=urgent Nodes=n[1-2] MaxTime=INFINITE PriorityTier=9 State=UP
"""


def why_not() -> str:
    """Why there can be no cluster here; "" where there can."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    return "" if os.geteuid() == 0 else "only root can start the daemons of Slurm"


@dataclass
class Cluster:
    """The daemons, and a folder for jobs."""

    home: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in watched.environment().items() if not name.startswith("SLURM")}
        return {**kept, "SLURM_CONF": str(self.home / "slurm.conf")}

    def call(self, *command: object, limit_s: float = 120, folder: Path | None = None) -> str:
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=limit_s, env=self.environment, check=False,
            cwd=folder,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, folder: Path, script: str, *options: str) -> int:
        """Submit the script from the folder; its output goes to `log` there."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.sbatch").write_text(script)
        options = ("--parsable", "--output", str(folder / "log"), "--open-mode=append", *options)
        return int(self.call("sbatch", *options, folder / "job.sbatch", folder=folder).split(";")[0])

    def shown(self, job: int) -> dict[str, str]:
        """What scontrol says of a job."""
        words = self.call("scontrol", "show", "job", job, "--oneliner").split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: int, limit_s: float = 200) -> dict[str, str]:
        """Until the job is over for good."""
        deadline = time.monotonic() + limit_s
        while (shown := self.shown(job))["JobState"] in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
            assert time.monotonic() < deadline, f"{shown['JobState']} after {limit_s} s"
            time.sleep(0.5)
        return shown


@contextlib.contextmanager
def started(more: str = "") -> Iterator[Cluster]:
    """Start munged, slurmctld and two slurmds; all of them end with the context. `more`: lines of slurm.conf."""
    # The folders of pytest are private, and munged wants its socket where everybody could come.
    with tempfile.TemporaryDirectory(prefix="slurm-lab-") as name:
        home = Path(name)
        home.chmod(0o755)
        with _daemons(home, more) as cluster:
            yield cluster


@contextlib.contextmanager
def _daemons(home: Path, more: str) -> Iterator[Cluster]:
    for name in ("munge", "run", "log", "state", "spool/n1", "spool/n2"):
        (home / name).mkdir(parents=True, mode=0o700 if name == "munge" else 0o755)
    (home / "munge/key").write_bytes(secrets.token_bytes(128))
    (home / "munge/key").chmod(0o400)
    ports = [watched.free_port() for _ in range(3)]
    first = 1000 * (1 + secrets.randbelow(60_000))
    (home / "slurm.conf").write_text(CONFIGURATION.format(home=home, ports=ports, first=first) + more)
    cluster = Cluster(home)
    try:
        cluster.call(
            "munged", f"--key-file={home}/munge/key", f"--socket={home}/run/munge.sock",
            f"--pid-file={home}/run/munged.pid", f"--log-file={home}/munge/log", f"--seed-file={home}/munge/seed",
            "--num-threads=2",
        )  # fmt: skip
        cluster.call("slurmctld", "-c", "-f", home / "slurm.conf")
        for node in ("n1", "n2"):
            cluster.call("slurmd", "-N", node, "-f", home / "slurm.conf")
        deadline = time.monotonic() + 120
        while cluster.call("sinfo", "--noheader", "--format=%T").split() != ["idle"]:
            assert time.monotonic() < deadline, cluster.call("sinfo")
            time.sleep(0.2)
        yield cluster
    finally:
        _end(home, cluster)


def _end(home: Path, cluster: Cluster) -> None:
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        if cluster.call("squeue", "--noheader"):  # after a failed test
            cluster.call("scancel", "--user=root", "--signal=KILL", "--full")
            cluster.call("scancel", "--user=root")
            deadline = time.monotonic() + 45
            while cluster.call("squeue", "--noheader") and time.monotonic() < deadline:
                time.sleep(0.5)
    for command in (("scontrol", "shutdown"), ("munged", "--stop", f"--socket={home}/run/munge.sock")):
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            cluster.call(*command)
    for path in (home / "run").glob("*.pid"):  # removed by a daemon that has ended
        deadline = time.monotonic() + 10
        while path.exists() and time.monotonic() < deadline:
            time.sleep(0.1)

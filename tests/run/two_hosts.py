"""Two hosts as network namespaces, and one job over both, watched on each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.run import watched
from whichrank.evidence.collectors import processes
from whichrank.lab.hosts import Host, LabError, Network, ip

JOB = Path(__file__).parent / "node_job.py"
NAMES = ("alpha", "beta")
PORT = 29777


def possible() -> bool:
    """Whether this user may make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    try:
        ip("netns", "add", f"whichrank-probe{os.getpid()}")
        ip("netns", "del", f"whichrank-probe{os.getpid()}")
    except LabError:
        return False
    return True


@dataclass
class Watch:
    """`whichrank run` on one host."""

    host: Host
    process: subprocess.Popen[bytes]
    out: Path
    log: Path

    @property
    def told(self) -> str:
        return self.log.read_text(errors="replace")

    def document(self, name: str) -> dict[str, Any]:
        return json.loads((self.out / name).read_text())

    @property
    def verdict(self) -> dict[str, Any]:
        assert (self.out / "verdict.json").exists(), self.told
        return self.document("verdict.json")["verdict"]

    def evidence_of(self, name: str) -> set[int]:
        """Ranks of a node whose dumps are in this bundle."""
        return {int(path.name.removeprefix("rank_")) for path in self.out.glob(f"bundle/nodes/{name}/dumps/rank_*")}

    def await_word(self, word: str, limit_s: float = 150) -> None:
        deadline = time.monotonic() + limit_s
        while word not in self.told:
            assert time.monotonic() < deadline, self.told
            assert self.process.poll() is None or word in self.told, self.told
            time.sleep(0.2)


@dataclass
class TwoHosts:
    """Made for one test; nothing of it stays."""

    folder: Path
    network: Network = field(init=False)
    watches: list[Watch] = field(default_factory=list)
    forked: bool = False
    """Whether the ranks of a host share one import of torch: for tests that are not about torchrun."""

    def __enter__(self) -> TwoHosts:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "token").write_text("a-secret-of-this-test\n")
        (self.folder / "token").chmod(0o600)
        self.network = Network(self.folder, NAMES)
        self.network.up()
        return self

    def __exit__(self, *_: object) -> None:
        for watch in self.watches:
            everyone = processes.everybody()
            below = processes.below(watch.process.pid, everyone)
            watch.process.kill()
            watch.process.wait()
            for pid in below:
                if processes.same(pid, everyone[pid].start_ticks):
                    os.kill(pid, 9)
        self.network.down()

    def start(self, what: str, *options: object, policy: str = "report") -> list[Watch]:
        """The same command on both hosts; the first one has the rendezvous, and leads."""
        self.watches = [self.start_on(host, what, *options, policy=policy) for host in self.network.hosts]
        return self.watches

    @property
    def by_address(self) -> tuple[object, ...]:
        return ("--leader", f"{self.network.hosts[0].address}:{PORT}", "--token-file", self.folder / "token")

    def start_on(self, host: Host, what: str, *options: object, policy: str = "report") -> Watch:
        launcher = self.fork_launcher(host, what) if self.forked else self.torchrun(what)
        return self.watch_on(host, launcher, *options, policy=policy)

    def watch_on(self, host: Host, launcher: list[str], *options: object, policy: str = "report") -> Watch:
        options = options or self.by_address
        out, log = self.folder / host.name, self.folder / f"{host.name}.log"
        command = watched.whichrank("run", "--out", out, "--no-history", "--policy", policy, *options, "--", *launcher)
        with log.open("wb") as stream:
            process = subprocess.Popen(
                self.inside(host, *command), stdout=stream, stderr=subprocess.STDOUT,
                env=watched.environment(WHICHRANK_HISTORY="off"),
            )  # fmt: skip
        follows = host is not self.network.hosts[0]
        return Watch(host, process, out / "nodes" / host.name if follows else out, log)

    def torchrun(self, what: str) -> list[str]:
        return [
            sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--rdzv-id=job",
            "--rdzv-backend=c10d", f"--rdzv-endpoint={self.network.hosts[0].address}:29500",
            str(JOB), what, str(self.folder),
        ]  # fmt: skip

    def fork_launcher(self, host: Host, what: str) -> list[str]:
        number, first = self.network.hosts.index(host), self.network.hosts[0].address
        place = ("--nodes", "2", "--node", str(number), "--address", first, "--port", "29500")
        return watched.forked(JOB, what, self.folder, world=2, options=place)

    def inside(self, host: Host, *words: object) -> list[str]:
        """A command on that host, with its name and its list of hosts."""
        steps = (
            f'hostname {host.name}; mount --make-rprivate /; mount --bind {self.folder}/etc_hosts /etc/hosts; exec "$@"'
        )
        return ["nsenter", f"--net=/run/netns/{host.namespace}", "unshare", "-mu", "sh", "-c", steps, "sh",
                *map(str, words)]  # fmt: skip

    def await_step(self, ranks: int = 4, limit_s: float = 180) -> None:
        """Until every rank has come to the step of the fault."""
        deadline = time.monotonic() + limit_s
        while len(list(self.folder.glob("reached.*"))) < ranks:
            assert time.monotonic() < deadline, [watch.told for watch in self.watches]
            time.sleep(0.1)

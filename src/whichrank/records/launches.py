"""One launch as a file states it: what the job is given, what the command starts, and where each fact stands."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from whichrank.model.evidence import Ref

OF_ITS_OWN = "the network of container"
"""How the name of a network begins that no other container shares."""


class Count(NamedTuple):
    """A number that the file states."""

    number: int
    ref: Ref
    said: str
    """The option or key, as the file writes it."""
    exact: bool = True
    """False for an upper limit: fewer are no mistake."""


class Told(NamedTuple):
    """A text that the launch is given: an address, a port, the number of a host."""

    name: str
    text: str
    ref: Ref


class Launch(Struct):
    """A command that starts ranks; None where the file does not say."""

    program: str
    ref: Ref
    # What the job is given.
    hosts: Count | None = None
    gpus: Count | None = None
    """For each host."""
    cpus: Count | None = None
    """For each task."""
    threads: Count | None = None
    """OMP_NUM_THREADS."""
    visible: Count | None = None
    """Of these, by CUDA_VISIBLE_DEVICES."""
    slots: Count | None = None
    """Ranks that the job has places for, on all hosts together."""
    tasks: Count | None = None
    """How many times a scheduler or MPI starts this command on each host."""
    started: Count | None = None
    """The same for all hosts together."""
    everywhere: bool = False
    """Every host runs this same line."""
    spread: bool = False
    """It is written for several hosts, also where nothing says how many."""
    background: bool = False
    """The script goes on while it runs."""
    host: str = ""
    """The one host that runs it, where the file names it."""
    shared: Count | None = None
    """Bytes of /dev/shm; not exact where it is the default of containers."""
    loaders: Count | None = None
    """Workers of data loaders in each rank."""
    grace: Count | None = None
    """Seconds between the request to stop and the kill; not exact where it is the default."""
    patience: Told | None = None
    """TORCH_ELASTIC_SHUTDOWN_TIMEOUT: seconds that torchrun leaves its workers after the request to stop."""
    network: str = ""
    """The network that it shares with others which run at the same time."""
    locked: Count | None = None
    """Bytes of memory that a process may lock."""
    rdma: Told | None = None
    """A setting that shows that NCCL is meant to use InfiniBand or RoCE."""
    # What the command starts.
    nodes: Count | None = None
    per_host: Count | None = None
    total: Count | None = None
    rank: Told | None = None
    """Which of the hosts this is."""
    address: Told | None = None
    addressed: bool = False
    """The launcher itself is given the address; torchrun does not read MASTER_ADDR."""
    port: Told | None = None
    world: Told | None = None
    interfaces: tuple[Told, ...] = ()
    backend: Told | None = None
    """That the program is told to communicate with: gloo, nccl."""
    of_nccl: tuple[Told, ...] = ()
    """Settings of NCCL that it gets."""
    one_name: Told | None = None
    """NCCL_HOSTID, where all hosts get the name of the one that began the script."""
    own_nodes: Count | None = None
    """Hosts that the program itself, not its launcher, is told of."""
    devices: Count | None = None
    """GPUs of each host that the program, with Lightning's options, is told to use."""
    complete: bool = False
    """Every option of the launcher is known, and no variable or operator adds others (torchrun reads PET_*)."""
    numbered: bool = True
    """The launcher takes the number of the host as it is given; with --rdzv-backend=c10d torchrun ignores it."""
    early: tuple[Told, ...] = ()
    """What differs from task to task, filled in before the tasks exist."""
    drawn: tuple[Told, ...] = ()
    """Ports and names of the meeting that every host draws at random."""
    last: Told | None = None
    """The meeting point is the last host of the job, while rank 0 is on the first."""
    itself: tuple[Told, ...] = ()
    """Addresses that every host takes from its own name."""

    @property
    def several(self) -> bool:
        """It runs on more than one host."""
        return any(count is not None and count.number > 1 for count in (self.nodes, self.hosts, self.own_nodes))

    @property
    def members(self) -> int:
        """How many lines like this one make the job: one for each host, or for each rank."""
        if self.nodes is not None:
            return self.nodes.number
        return int(self.world.text) if self.world is not None else 0

    @property
    def ranks_per_host(self) -> Count | None:
        """Processes on each host, as far as the numbers tell."""
        if self.per_host is not None:
            return self.per_host
        if self.total is not None and self.nodes is not None and self.total.number % self.nodes.number == 0:
            return self.total._replace(number=self.total.number // self.nodes.number)
        return None

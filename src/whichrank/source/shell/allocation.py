"""What a job asks its scheduler for: hosts, GPUs and tasks per host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_NODES = frozenset({"--nodes", "-N", "-nnodes"})
_TASKS = frozenset({"--ntasks-per-node", "--tasks-per-node"})
_GPUS = frozenset({"--gpus-per-node", "--gres", "--gpus", "-G", "--gpus-per-task"})
_CPUS = frozenset({"--cpus-per-task", "-c"})
_ALL_TASKS = frozenset({"--ntasks", "-n"})


class Count(NamedTuple):
    """A number and the line that says it."""

    number: int
    line: int
    said: str
    exact: bool = True
    """False for an upper limit: fewer are no mistake."""

    def times(self, other: int) -> Count:
        return self._replace(number=self.number * other)


class Allocation(NamedTuple):
    """What is known of a job's size; None where nothing says it."""

    nodes: Count | None = None
    gpus: Count | None = None
    """Per host."""
    tasks: Count | None = None
    """Per host."""
    per_task: Count | None = None
    total: Count | None = None
    """GPUs of the whole job."""
    slots: Count | None = None
    """Ranks that there are places for, on all hosts together."""
    started: Count | None = None
    """Ranks that srun or MPI starts, on all hosts together."""
    cpus: Count | None = None
    """Per task."""
    ptile: Count | None = None
    """LSF: slots on each host."""
    shared: Count | None = None
    """Bytes of /dev/shm."""
    locked: Count | None = None
    """Bytes that a process may lock, for RDMA."""
    rows: Count | None = None
    """Lines of PBS's file of hosts."""
    grace: Count | None = None
    """Seconds between the request to stop and the kill."""

    @property
    def devices(self) -> Count | None:
        """GPUs that each host has for the job."""
        if self.gpus is not None:
            return self.gpus
        if self.per_task is not None and self.tasks is not None:
            return self.per_task.times(self.tasks.number)
        if self.total is not None and self.nodes is not None and self.total.number % self.nodes.number == 0:
            return self.total._replace(number=self.total.number // self.nodes.number)
        return None

    def directive(self, comment: str, line: int) -> Allocation:
        """With what one directive of a batch system adds."""
        system, _, rest = comment.partition(" ")
        if system == "#SBATCH":
            return self.slurm(rest.split("#", 1)[0].split(), line)
        if system == "#flux:":
            return self.slurm(rest.split(), line)
        if system == "#$" and (match := re.match(r"-pe\s+\S+\s+(\d{1,6})\s*$", rest)) and int(match[1]):
            return self._replace(slots=Count(int(match[1]), line, rest.strip(), exact=False))
        if system == "#PBS":
            return self._pbs(rest, line)
        return self._lsf(rest, line) if system == "#BSUB" else self

    def slurm(self, words: Sequence[str], line: int) -> Allocation:
        """With options of sbatch, salloc or srun."""
        found = self
        for option, text in _options(words):
            number = _last_number(text, gpus=option in _GPUS)
            if not number:
                continue
            count = Count(number, line, f"{option} {text}" if option.startswith("-") and len(option) == 2 else option)
            if option in _NODES:
                found = found._replace(nodes=count)
            elif option in _TASKS:
                found = found._replace(tasks=count)
            elif option in _ALL_TASKS:
                found = found._replace(started=count)
            elif option in _CPUS:
                found = found._replace(cpus=count)
            elif option == "--gpus-per-task":
                found = found._replace(per_task=count)
            elif option in {"--gpus", "-G"}:
                found = found._replace(total=count)
            elif option == "--gpus-per-node" or "gpu" in text:
                found = found._replace(gpus=count)
        return found

    def _pbs(self, text: str, line: int) -> Allocation:
        match = re.search(r"-l\s*(?:select|nodes)=(\d{1,6})((?::[\w=.-]+)*)(\+?)", text)
        if not match or match[3] or int(match[1]) < 1:
            return self
        found = self._replace(nodes=Count(int(match[1]), line, f"select={match[1]}"))
        gpus = re.search(r":n?gpus=(\d{1,4})", match[2])
        ranks = re.search(r":(mpiprocs=(\d{1,4}))", match[2])
        lines = re.search(r":(?:mpiprocs|ppn)=([1-9]\d{0,3})(?!\d)", match[2])
        found = found._replace(rows=Count(int(match[1]) * (int(lines[1]) if lines else 1), line, match[0].strip()))
        if ranks and int(ranks[2]):
            said = f"select={match[1]} with {ranks[1]}"
            found = found._replace(slots=Count(int(ranks[2]) * int(match[1]), line, said))
        # A chunk is not a host unless it asks for a whole one: many small chunks may share one.
        return found._replace(gpus=Count(int(gpus[1]), line, gpus.group()[1:])) if gpus and int(gpus[1]) else found

    def _lsf(self, text: str, line: int) -> Allocation:
        found = self
        if match := re.match(r"-nnodes\s+(\d{1,6})", text):
            found = found._replace(nodes=Count(int(match[1]), line, "-nnodes"))
        if (match := re.search(r"\bnum=(\d{1,4})(?![\d/])", text)) and text.lstrip().startswith("-gpu"):
            found = found._replace(gpus=Count(int(match[1]), line, "-gpu num"))
        if match := re.match(r"-n\s+(\d{1,6})\s*$", text):
            found = found._replace(slots=Count(int(match[1]), line, "-n", exact=False))
        if match := re.search(r"\bspan\[ptile=(\d{1,4})\]", text):
            found = found._replace(ptile=Count(int(match[1]), line, "ptile"))
        slots, tile = found.slots, found.ptile
        if slots is not None and tile is not None and tile.number and slots.number % tile.number == 0:
            said = f"-n {slots.number} with ptile={tile.number}"
            found = found._replace(nodes=Count(slots.number // tile.number, tile.line, said))
        return found


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in _NODES | _TASKS | _GPUS | _ALL_TASKS | _CPUS:
            yield option, value if equals else words[index + 1] if index + 1 < len(words) else ""
        elif re.match(r"-[NGnc]\d", word):
            yield word[:2], word[2:]


def _last_number(text: str, *, gpus: bool) -> int:
    """`4`, `h100:8`, `gpu:h100:8`; a range, a list or text is not one number."""
    match = re.fullmatch(r"(?:[\w.-]+:){0,2}(\d{1,6})" if gpus else r"(\d{1,6})", text.strip("\"'"))
    return int(match[1]) if match else 0

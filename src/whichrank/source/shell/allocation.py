"""What a job asks its scheduler for: hosts, GPUs and tasks per host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_NODES = frozenset({"--nodes", "-N", "-nnodes"})
_TASKS = frozenset({"--ntasks-per-node", "--tasks-per-node"})
_GPUS = frozenset({"--gpus-per-node", "--gres", "--gpus", "-G", "--gpus-per-task"})


class Count(NamedTuple):
    """A number and the line that says it."""

    number: int
    line: int
    said: str


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

    @property
    def devices(self) -> Count | None:
        """GPUs that each host has for the job."""
        if self.gpus is not None:
            return self.gpus
        if self.per_task is not None and self.tasks is not None:
            return self.per_task._replace(number=self.per_task.number * self.tasks.number)
        if self.total is not None and self.nodes is not None and self.total.number % self.nodes.number == 0:
            return self.total._replace(number=self.total.number // self.nodes.number)
        return None

    def directive(self, comment: str, line: int) -> Allocation:
        """With what one directive of a batch system adds."""
        system, _, rest = comment.partition(" ")
        if system == "#SBATCH":
            return self.slurm(rest.split("#", 1)[0].split(), line)
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
        # A chunk is not a host unless it asks for a whole one: many small chunks may share one.
        return found._replace(gpus=Count(int(gpus[1]), line, gpus.group()[1:])) if gpus and int(gpus[1]) else found

    def _lsf(self, text: str, line: int) -> Allocation:
        found = self
        if match := re.match(r"-nnodes\s+(\d{1,6})", text):
            found = found._replace(nodes=Count(int(match[1]), line, "-nnodes"))
        if (match := re.search(r"\bnum=(\d{1,4})(?![\d/])", text)) and text.lstrip().startswith("-gpu"):
            found = found._replace(gpus=Count(int(match[1]), line, "-gpu num"))
        return found


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in _NODES | _TASKS | _GPUS:
            yield option, value if equals else words[index + 1] if index + 1 < len(words) else ""
        elif re.match(r"-[NG]\d", word):
            yield word[:2], word[2:]


def _last_number(text: str, *, gpus: bool) -> int:
    """`4`, `h100:8`, `gpu:h100:8`; a range, a list or text is not one number."""
    match = re.fullmatch(r"(?:[\w.-]+:){0,2}(\d{1,6})" if gpus else r"(\d{1,6})", text.strip("\"'"))
    return int(match[1]) if match else 0

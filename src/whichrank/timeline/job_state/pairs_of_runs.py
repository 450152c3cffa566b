"""What two runs tell together: one failed, the other did not, and one change lies between them.

Runs are told apart by their processes: another file without a communicator in common, or the same rank as another
process further down. Only what NCCL prints of itself is compared: its settings, its version, the number of hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import TYPE_CHECKING

from msgspec import Struct, field

from whichrank.facts.interventions import ONE_HOST, interventions
from whichrank.model.evidence import Ref
from whichrank.records.events.run_state import RunFinished
from whichrank.records.trial import Outcome, Trial
from whichrank.timeline.job_state.outcome import failures

if TYPE_CHECKING:
    from whichrank.records.events.base import Event
    from whichrank.records.nccl import NcclProcess
    from whichrank.timeline.case import Case

_ANOTHER_NCCL = "another NCCL"
# What a user changes in order to see more.
_OF_DEBUGGING = ("NCCL_DEBUG", "NCCL_WARN", "NCCL_RAS", "NCCL_TOPO_DUMP", "NCCL_GRAPH_DUMP", "NCCL_PROFILER")
_MOST_RUNS = 8
_STEPS = 3


class _Run(Struct):
    """Processes of one run, and which lines of which files are theirs."""

    processes: list[NcclProcess] = field(default_factory=list)
    lines: dict[str, tuple[int, int]] = field(default_factory=dict)
    failed: bool = False
    went_well: bool = False

    def holds(self, source: str, line: int) -> bool:
        first, last = self.lines.get(source, (1, 0))
        return first <= line <= last

    @property
    def ranks(self) -> set[int]:
        return {init.rank for process in self.processes for init in process.inits}

    @property
    def settings(self) -> dict[str, str]:
        every = {name: value for process in self.processes for name, value in process.env.items()}
        return {name: value for name, value in every.items() if not name.startswith(_OF_DEBUGGING)}

    @property
    def versions(self) -> set[str]:
        return {process.version for process in self.processes if process.version}

    @property
    def hosts(self) -> set[str]:
        return {process.host for process in self.processes if process.host}


def trials(case: Case) -> Iterator[Trial]:
    """Every change that alone lies between two runs, and what it did for the one that failed."""
    runs = list(_runs(case.nccl))
    if not 1 < len(runs) <= _MOST_RUNS:
        return
    broken = failures(case)
    for run in runs:
        run.failed = any(run.holds(event.ref.source, event.line) for event in broken)
        run.went_well = not run.failed and (_said_so(run, case.events(RunFinished)) or _counted(run, case))
    for before, after in permutations(runs, 2):
        # Files of different ranks may be of one run.
        if before.failed and (after.went_well or after.failed) and before.ranks & after.ranks:
            yield from _between(before, after)


def _between(before: _Run, after: _Run) -> Iterator[Trial]:
    outcome: Outcome = "helped" if after.went_well else "did not help"
    set_anew = {name: value for name, value in after.settings.items() if before.settings.get(name) != value}
    dropped = before.settings.keys() - after.settings.keys()
    same_version = not before.versions or not after.versions or before.versions == after.versions
    same_hosts = len(before.hosts) == len(after.hosts)
    if len(set_anew) == 1 and not dropped and same_version and same_hosts:
        ((name, value),) = set_anew.items()
        for change in interventions().values():
            if change.within(f"{name}={value}"):
                where, process = next((p.source, p) for p in after.processes if p.env.get(name) == value)
                quote = f"{name} set by environment to {value}"
                yield Trial(change.change, outcome, Ref(where, f"from line {process.first_line}", quote), seen=True)
    elif not set_anew and not dropped and same_hosts and not same_version:
        yield _seen(_ANOTHER_NCCL, outcome, after, f"NCCL version {min(after.versions)}")
    elif not set_anew and not dropped and same_version and len(before.hosts) > len(after.hosts) == 1:
        yield _seen(ONE_HOST, outcome, after, f"all processes on {min(after.hosts)}")


def _seen(change: str, outcome: Outcome, run: _Run, quote: str) -> Trial:
    process = run.processes[0]
    return Trial(change, outcome, Ref(process.source, f"from line {process.first_line}", quote), seen=True)


def _runs(processes: Iterable[NcclProcess]) -> Iterator[_Run]:
    """Runs that share a communicator are one."""
    found: list[tuple[_Run, set[str]]] = []
    for run in _in_files(processes):
        shared = {init.comm_id for process in run.processes for init in process.inits if init.comm_id}
        same = next((known for known in found if known[1] & shared), None)
        if same is None:
            found.append((run, shared))
        else:
            same[0].processes += run.processes
            same[0].lines |= run.lines
            same[1].update(shared)
    yield from (run for run, _ in found)


def _in_files(processes: Iterable[NcclProcess]) -> Iterator[_Run]:
    """A run ends in its file where a rank begins again as another process, below all that the run printed."""
    files: dict[str, list[NcclProcess]] = {}
    for process in processes:
        if process.inits:
            files.setdefault(process.source, []).append(process)
    for source, members in files.items():
        members.sort(key=lambda process: process.first_line)
        run, ranks, last = _Run(), set[int](), 0
        first = 1
        for process in members:
            mine = {init.rank for init in process.inits}
            if mine & ranks and process.first_line > last:
                run.lines[source] = (first, process.first_line - 1)
                yield run
                run, ranks, first = _Run(), set(), process.first_line
            run.processes.append(process)
            ranks |= mine
            last = max(last, process.last_line)
        run.lines[source] = (first, 1 << 62)
        yield run


def _said_so(run: _Run, finished: Iterable[Event]) -> bool:
    return any(run.holds(event.ref.source, event.line) for event in finished)


def _counted(run: _Run, case: Case) -> bool:
    """Whether its output counts steps."""
    counts = ((p.source, int(line)) for p in case.progress for line in p.line if p.source in run.lines)
    return sum(run.holds(*place) for place in counts) >= _STEPS

"""The records of the ranks' guards, read and compared while the job runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.evidence.readers.guard_records import Lines
from whichrank.model.files import private_folder, replace_file
from whichrank.run.monitoring.observers import Silent
from whichrank.run.watch.alarm import Level
from whichrank.run.watch.capture.files import read
from whichrank.run.watch.capture.guards import SUFFIX
from whichrank.run.watch.job_processes import Member
from whichrank.timeline.guard.compare import Comparison
from whichrank.timeline.guard.wrong import Wrong

LOOK_S = 1.0
SETTLED = 4
"""Steps after which a value that is not finite has come to stay, or has not."""
MOST = 32 << 20
QUIET = ("launch",)
"""Differences that are told with the others, and are no reason to raise an alarm by themselves."""


@dataclass(frozen=True, slots=True)
class GuardState:
    """For metrics: how far the comparison is."""

    steps: int
    compared: int
    window: int
    wrong: int
    off: int


@dataclass(slots=True)
class _Source:
    """A file that is still being written."""

    lines: Lines
    offset: int = 0
    rest: bytes = b""
    inode: int = 0


@dataclass(slots=True)
class GuardWatch(Silent):
    """An observer: looks at what was written since, and says once of each kind of difference what it is."""

    folder: Path
    tell: Callable[[str], None]
    found: Callable[[str], None] = lambda _why: None
    """Called with the first difference of each kind and rank."""
    on_state: Callable[[GuardState], None] = lambda _state: None
    elsewhere: Callable[[], list[Path]] = list
    """Records of the ranks of other nodes."""
    judges: Callable[[], bool] = lambda: True
    """Whether it is for this node to say what is wrong: the ranks of one node may be too few to tell."""
    comparison: Comparison | None = None
    _sources: dict[str, _Source] = field(default_factory=dict)
    _told: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    _next: float = 0.0
    _planned: bool = False
    _not_deterministic: bool = False

    def on_look(self, now_s: float, level: Level, ranks: Sequence[Member]) -> None:  # noqa: ARG002
        if now_s >= self._next:
            self._next = now_s + LOOK_S
            self.look()

    def look(self, *, last: bool = False) -> None:
        """Read on; with `last` no more will come."""
        for path in self.records():
            self._follow(path)
        comparison = self.comparison
        if comparison is None:
            return
        if last:
            comparison.settle()
        wrongs = comparison.wrongs()
        self.on_state(
            GuardState(
                comparison.steps, comparison.compared, comparison.replicas.window, len(wrongs), len(comparison.off)
            )
        )
        for wrong in wrongs if self.judges() else ():
            self._raise(wrong, comparison, last=last)

    def records(self) -> list[Path]:
        """All records that are at hand."""
        return [*sorted(self.folder.glob(f"*{SUFFIX}")), *self.elsewhere()]

    @property
    def alarming(self) -> bool:
        """Whether something was found that is worth a verdict."""
        return bool(self._told)

    def _raise(self, wrong: Wrong, comparison: Comparison, *, last: bool) -> None:
        key = (wrong.kind, wrong.odd)
        if key in self._told or wrong.kind in QUIET:
            return
        if wrong.kind == "nan" and not last and comparison.steps < wrong.step + SETTLED:
            return
        self._told.add(key)
        self.found(why(wrong))

    def _follow(self, path: Path) -> None:
        source = self._sources.get(str(path))
        if source is None:
            source = self._sources[str(path)] = _Source(Lines(path.name))
        try:
            status = path.stat()
            if source.inode not in (0, status.st_ino):  # the guard began a new file
                source.offset, source.rest = 0, b""
            source.inode = status.st_ino
            with path.open("rb") as stream:
                stream.seek(source.offset)
                data = stream.read(MOST)
        except OSError:
            return
        if not data:
            return
        source.offset += len(data)
        *lines, source.rest = (source.rest + data).split(b"\n")
        fresh = source.lines.feed(lines)
        file = source.lines.file
        if file is None:
            return
        file.notes.clear()  # what has been compared need not be kept
        if self.comparison is None or file.attempt > self.comparison.attempt:
            before = self.comparison.resumes if self.comparison is not None else None
            self.comparison = Comparison(
                file.world, file.attempt, resumes=before.again(file.world) if before is not None else None
            )
            self._told.clear()
        if file.attempt == self.comparison.attempt:
            self.comparison.add(file, fresh)
        for note in fresh:
            if note.kind == "off":
                self.tell(f"the guard of rank {file.rank} is off: {note.said['why'][:200]}")
            elif note.kind == "plan":
                self._plan(note.said)
            elif note.kind == "replay" and note.said.get("means") == "code" and not self._not_deterministic:
                self._not_deterministic = True
                self.tell(
                    f"guard: a micro-batch of rank {file.rank} gives another result on every device and each time: the "
                    "code is not deterministic, so that a replay can't prove a fault of the hardware"
                )

    def _plan(self, said: dict[str, object]) -> None:
        """K and the cost, as measured by rank 0."""
        numbers = [said.get(key) for key in ("step_s", "look_s", "slice_s", "gradients", "slices")]
        if self._planned or not all(isinstance(n, (int, float)) and n >= 0 for n in numbers):
            return
        self._planned = True
        if not numbers[0]:
            return  # no step was measured
        step_s, look_s, slice_s, gradients, slices = (float(str(n)) for n in numbers)
        share = 100 * (look_s / max(gradients, 1) + slice_s / max(slices, 1)) / max(step_s, 1e-9)
        parts = self.comparison.replicas.window if self.comparison is not None else 0
        # The window so far was that of a look at every step.
        often = "step" if gradients == 1 else f"{int(gradients)}th step"
        self.tell(
            f"guard: all tensors are compared within {parts * int(slices) or '?'} steps, gradients at every {often}; "
            f"it takes {share:.2f} % of a step of {1000 * step_s:.0f} ms"
        )

    def summary(self) -> str:
        """What was compared, at the end of a job that nothing was found in."""
        comparison = self.comparison
        if comparison is None or not comparison.compared:
            why = next(iter(comparison.off.values()), "") if comparison is not None else ""
            return "guard: nothing could be compared" + (f" ({why})" if why else ": no optimizer stepped on two ranks")
        return (
            f"guard: {comparison.compared:,} comparisons of {comparison.world} ranks in {comparison.steps + 1} steps: "
            "nothing differs that should be equal"
        )

    def keep_aside(self, out: Path) -> None:
        """The records of a job that ended well, for `whichrank compare`."""
        if files := self.records():
            private_folder(out / "guard")
        for path in files:
            data = read(path)
            first = Lines(path.name)
            first.feed(data.split(b"\n", 1)[:1])
            if first.file is not None:
                name = f"rank_{first.file.rank}.{first.file.pid or 0}.guard.jsonl"
                replace_file(out / "guard" / name, data, mode=0o600)


def why(wrong: Wrong) -> str:
    """A difference in a line, for the alarm."""
    from whichrank.rules.guard_findings import who

    what = {
        "replica": f"has another {wrong.module} ({wrong.tensor}) than its replicas",
        "rate": "steps with another learning rate",
        "setting": "steps with other settings of the optimizer",
        "nan": f"has the first {wrong.tensor} that is not finite",
        "outlier": "has a local gradient far from all others",
        "batch": "get the same batches",
        "sampler": f"samples with another {wrong.tensor}",
        "random": "draws other random numbers than the ranks that get the same batch",
        "resume": f"holds another {wrong.module} than the checkpoint that it loaded",
        "signature": f"brought another {wrong.detail.get('aspect')} to {wrong.detail.get('op')}",
    }.get(wrong.kind, "differs")
    return f"{who(wrong).lower()} {what}" + (
        f" at step {wrong.step}" if wrong.step >= 0 and wrong.kind != "signature" else ""
    )

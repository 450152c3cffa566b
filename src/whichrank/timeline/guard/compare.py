"""All comparisons as one: records in, as they come, and what was wrong out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from whichrank.records.guard import GuardFile, GuardNote
from whichrank.timeline.guard.gradients import Gradients
from whichrank.timeline.guard.random_states import RandomStates
from whichrank.timeline.guard.replicas import Replicas
from whichrank.timeline.guard.resumes import Resumes
from whichrank.timeline.guard.settings import Settings
from whichrank.timeline.guard.signatures import Signatures
from whichrank.timeline.guard.wrong import Wrong, ranks_of


class Saved(Struct, frozen=True):
    """A checkpoint that was written."""

    step: int
    path: str
    rank: int


class Comparison:
    """The guards of one attempt of a job."""

    def __init__(self, world: int, attempt: int = 0, resumes: Resumes | None = None) -> None:
        """`resumes` is what earlier attempts have saved."""
        self.world, self.attempt, self.steps = world, attempt, -1
        self.saves: list[Saved] = []
        self.replays: list[tuple[GuardFile, GuardNote]] = []
        self.off: dict[int, str] = {}
        """By rank: what the guard says of a problem of its own."""
        self.files: dict[int, GuardFile] = {}
        self.replicas, self.gradients = Replicas(world), Gradients(world)
        self.signatures, self.settings = Signatures(), Settings(world)
        self.random_states = RandomStates(world)
        self.resumes = resumes or Resumes(world)
        self._told: dict[str, Callable[[GuardFile, GuardNote], None]] = {
            "start": self.settings.start, "layout": self._layout, "slice": self._slice, "full": self._full,
            "grad": self._gradient, "loss": self.gradients.loss, "group": self.signatures.group,
            "sig": self.signatures.signature, "calls": self.signatures.calls, "save": self._save,
            "scheduler": self.settings.scheduler, "sampler": self.settings.sampler, "off": self._off,
            "replay": self._replay, "load": self.resumes.load,
        }  # fmt: skip

    def add(self, file: GuardFile, notes: Iterable[GuardNote]) -> None:
        self.files[file.rank] = file
        for note in notes:
            tell = self._told.get(note.kind)
            if tell is not None:
                tell(file, note)

    def wrongs(self) -> list[Wrong]:
        """Everything so far, in order of the step."""
        found = [
            *self.replicas.found, *self.settings.found, *self.signatures.found, *self.gradients.settle(),
            *self.random_states.found, *self.resumes.found,
        ]  # fmt: skip
        return sorted(found, key=lambda wrong: wrong.step)

    def settle(self) -> None:
        """No more will come."""
        self.replicas.settle()

    @property
    def compared(self) -> int:
        return self.replicas.compared + self.gradients.compared + self.signatures.compared

    def _layout(self, file: GuardFile, note: GuardNote) -> None:
        units: list[list[Any]] = note.said["units"]
        optimizer: int = note.said["o"]
        self.replicas.layout(file, note)
        self.resumes.layout(file, note)
        self.gradients.parameters(optimizer, units)
        names = "|".join(str(unit[0]) for unit in units if unit[1] == "parameter")
        self.settings.models.setdefault(optimizer, {})[file.rank] = names
        told = {str(unit[2]) for unit in units if unit[1] == "parameter" and unit[2] not in ("", "apart")}
        if len(told) == 1:  # one group of replicas: each of them has its own share of the data
            self.gradients.apart[optimizer] = ranks_of(next(iter(told)))

    def _slice(self, file: GuardFile, note: GuardNote) -> None:
        self.steps = max(self.steps, note.said["s"])
        self.replicas.slice(file, note)

    def _full(self, file: GuardFile, note: GuardNote) -> None:
        self.replicas.full(file, note)
        self.resumes.full(file, note)

    def _gradient(self, file: GuardFile, note: GuardNote) -> None:
        self.steps = max(self.steps, note.said["s"])
        self.gradients.gradient(file, note)
        self.settings.gradient(file, note)
        self.random_states.gradient(file, note, self.gradients.apart.get(note.said["o"], ()))

    def _save(self, file: GuardFile, note: GuardNote) -> None:
        self.saves.append(Saved(note.said["s"], note.said["path"][:1000], file.rank))

    def _replay(self, file: GuardFile, note: GuardNote) -> None:
        self.replays.append((file, note))

    def _off(self, file: GuardFile, note: GuardNote) -> None:
        self.off.setdefault(file.rank, note.said["why"][:300])


def compare(files: Iterable[GuardFile]) -> Comparison | None:
    """The newest attempt that left records of at least two ranks."""
    attempts: dict[int, list[GuardFile]] = {}
    for file in files:
        attempts.setdefault(file.attempt, []).append(file)
    fit = [attempt for attempt, members in attempts.items() if len({m.rank for m in members}) > 1]
    if not fit:
        return None
    chosen = attempts[max(fit)]
    world = max(file.world for file in chosen)
    earlier = [file for attempt in sorted(attempts) if attempt < max(fit) for file in attempts[attempt]]
    comparison = Comparison(world, max(fit), resumes=Resumes.of(earlier).again(world))
    # Layouts and groups first: what a rank says is understood by them.
    for file in sorted(chosen, key=lambda f: f.rank):
        comparison.add(file, (note for note in file.notes if note.kind in ("layout", "group", "sig", "start")))
    for file in sorted(chosen, key=lambda f: f.rank):
        comparison.add(file, (note for note in file.notes if note.kind not in ("layout", "group", "sig", "start")))
    comparison.settle()
    return comparison

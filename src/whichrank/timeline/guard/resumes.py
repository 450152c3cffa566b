"""Whether a resumed job holds what was saved: parameters and the optimizer's state before the first step after a load,
against those at the save of the same file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from whichrank.model.evidence import Ref
from whichrank.records.guard import GuardFile, GuardNote
from whichrank.timeline.guard.wrong import Wrong, ranks_of, spread

MOVED = "--------"
STATE = "state"
"""The kind of what is missing as a whole: the optimizer's state."""
MOST_SAVES = 64
"""Checkpoints whose sums are kept, the newest."""

_Sums = dict[str, tuple[str, str]]
"""Tensor, with its kind and shape -> the ranks that hold the same, and its sum."""


class _Loaded(Struct):
    """A rank that has loaded a file and not stepped since."""

    path: str
    line: int


class Resumes(Struct):
    """Goes from one attempt of a job to the next: what one has saved the other loads."""

    world: int
    found: list[Wrong] = field(default_factory=list)
    compared: int = 0
    _layouts: dict[tuple[str, int, str], list[list[str]]] = field(default_factory=dict)
    _saved: dict[str, dict[int, _Sums]] = field(default_factory=dict)
    _with_state: set[str] = field(default_factory=set)
    """Files that hold the state of an optimizer that had stepped."""
    _loaded: dict[int, _Loaded] = field(default_factory=dict)

    @staticmethod
    def of(files: Iterable[GuardFile]) -> Resumes:
        """What these have saved."""
        found = Resumes(0)
        for file in files:
            for note in file.notes:
                if note.kind == "layout":
                    found.layout(file, note)
                elif note.kind == "full" and note.said["why"] == "save":
                    found.full(file, note)
        return found

    def resumed(self, files: Sequence[GuardFile]) -> list[Wrong]:
        """What those that resumed hold otherwise."""
        later = self.again(max((file.world for file in files), default=0))
        for file in files:
            for note in file.notes:
                if note.kind in ("layout", "load", "full"):
                    {"layout": later.layout, "load": later.load, "full": later.full}[note.kind](file, note)
        return later.found

    def again(self, world: int) -> Resumes:
        """For the next attempt."""
        return Resumes(world, _saved=self._saved, _with_state=self._with_state)

    def layout(self, file: GuardFile, note: GuardNote) -> None:
        self._layouts[file.source, note.said["o"], note.said["id"]] = note.said["units"]

    def load(self, file: GuardFile, note: GuardNote) -> None:
        self._loaded[file.rank] = _Loaded(str(note.said["path"])[:1000], note.line)

    def full(self, file: GuardFile, note: GuardNote) -> None:
        """The sums of all tensors, at a save or before the first step."""
        said = note.said
        units = self._layouts.get((file.source, said["o"], said["l"]))
        if units is None:
            return
        sums = _sums(units, said["u"])
        if said["why"] == "save":
            path = str(said.get("path", ""))[:1000]
            self._saved.setdefault(path, {}).setdefault(file.rank, {}).update(sums)
            if said.get("state") is True:
                self._with_state.add(path)
            while len(self._saved) > MOST_SAVES:
                oldest = next(iter(self._saved))
                del self._saved[oldest]
                self._with_state.discard(oldest)
        elif said["why"] == "start" and file.rank in self._loaded:
            self._judge(file, note, self._loaded[file.rank], sums)

    def _judge(self, file: GuardFile, note: GuardNote, loaded: _Loaded, now: _Sums) -> None:
        then = self._of(loaded.path, file.rank, now)
        same = [name for name in then if then[name] == now[name][1]]
        other = [name for name in then if then[name] != now[name][1]]
        self.compared += len(then)
        # What has nothing of the file was not meant to: another model, or a change of the type of all numbers.
        if not then or sum(map(_is_parameter, same)) < sum(map(_is_parameter, other)):
            return
        told = file.ref(loaded.line, f"loads {loaded.path}")
        if other:
            names, kind = [_name(name) for name in other], _kind(other[0])
            quote = f"{names[0]} ({kind}): checksum {now[other[0]][1]}, {then[other[0]]} when it was saved"
            refs = [told, file.ref(note.line, quote)]
            self._add(file.rank, names, kind, loaded.path, f"{len(other)} of {len(then)}", refs)
        elif all(map(_is_parameter, now)) and (names := self._left_behind(loaded.path, now)):
            quote = "the optimizer has no state before its first step"
            self._add(file.rank, names, STATE, loaded.path, "all", [told, file.ref(note.line, quote)])

    def _left_behind(self, path: str, now: _Sums) -> list[str]:
        """Parameters whose state of the optimizer is in the file."""
        if path not in self._with_state:
            return []
        saved = {_name(key) for sums in self._saved[path].values() for key in sums if not _is_parameter(key)}
        return [name for name in map(_name, now) if name in saved]

    def _of(self, path: str, rank: int, now: _Sums) -> dict[str, str]:
        """What was saved there of these tensors: by this rank, or by one that holds the same."""
        found: dict[str, str] = {}
        for saver, sums in self._saved.get(path, {}).items():
            for name in (each for each in now if each in sums):
                group = ranks_of(now[name][0])
                if saver == rank or not now[name][0] or (rank in group and saver in group):
                    found[name] = sums[name][1]
        return found

    def _add(self, rank: int, names: list[str], kind: str, path: str, count: str, refs: list[Ref]) -> None:
        for wrong in self.found:
            if wrong.detail["path"] == path and wrong.detail["names"] == names and wrong.tensor == kind:
                wrong.odd = tuple(sorted({*wrong.odd, rank}))
                wrong.refs = spread([*wrong.refs, *refs], wrong.odd)
                wrong.values[rank] = "other"
                return
        detail = {"path": path, "names": names, "count": count}
        everybody = tuple(range(self.world))
        self.found.append(Wrong("resume", -1, (rank,), everybody, names[0], kind, None, {rank: "other"}, refs, detail))


def _sums(units: list[list[str]], text: str) -> _Sums:
    found: _Sums = {}
    for unit, at in zip(units, range(0, len(text) - 7, 8), strict=False):
        total = text[at : at + 8]
        if total != MOVED and unit[1] != "frozen":  # what is frozen is the same whatever was loaded
            found[f"{unit[0]}\0{unit[1]}\0{unit[3]}{unit[4]}"] = (unit[2], total)
    return found


def _name(key: str) -> str:
    return key.partition("\0")[0]


def _kind(key: str) -> str:
    return key.split("\0")[1]


def _is_parameter(key: str) -> bool:
    return _kind(key) == "parameter"

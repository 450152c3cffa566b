"""Slices of parameters, state and buffers, compared piece by piece as soon as all replicas have told theirs."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from whichrank.records.guard import GuardFile, GuardNote
from whichrank.timeline.guard.wrong import Kind, Wrong, classes, minority, ranks_of, spread

MOVED = "--------"
APART = "apart"
LEARNED_AFTER = 3
"""Looks at which tensors were equal and had changed, after which they are taken for replicas."""
MOST_PENDING = 200_000
WHOLE = -1
_PARAMETERS = ("parameter", "frozen")


class _Layout(Struct):
    units: list[list[str]]
    pieces: list[list[list[int]]]


class _History(Struct):
    """What is known of one piece of one tensor."""

    sides: frozenset[frozenset[int]] = frozenset()
    looks: int = 0
    """At which the sides were the same and the values had changed."""
    since: int = -1
    """The first step at which the sides were these."""
    last: dict[int, str] = field(default_factory=dict)
    good: int | None = None
    apart: dict[int, tuple[str, GuardFile, int]] = field(default_factory=dict)
    """What was told when each rank came to hold another value."""


_Key = tuple[int, str, str, str, int]
"""Optimizer, name, kind, replicas, piece."""


class Replicas:
    """Told the slices of all ranks in any order; keeps what was wrong."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.found: list[Wrong] = []
        self.compared = 0
        self.verified: int = -1
        """The newest step at which something was compared and equal."""
        self.window = 0
        """Steps within which everything is looked at once."""
        self._layouts: dict[tuple[int, int, str], _Layout] = {}
        self._pending: dict[tuple[int, _Key], dict[int, tuple[str, GuardFile, int]]] = {}
        self._known: dict[_Key, _History] = {}
        self._reported: set[tuple[int, str, str]] = set()

    def layout(self, file: GuardFile, note: GuardNote) -> None:
        said = note.said
        self._layouts[file.rank, said["o"], said["id"]] = _Layout(said["units"], said["pieces"])

    def slice(self, file: GuardFile, note: GuardNote) -> None:
        said = note.said
        layout = self._layouts.get((file.rank, said["o"], said["l"]))
        if layout is None or said["q"] >= len(layout.pieces):
            return
        self.window = max(self.window, said["k"] if isinstance(said.get("k"), int) else 0)
        for (index, piece), text in zip(layout.pieces[said["q"]], _eights(said["p"]), strict=False):
            self._tell(file, note.line, said["o"], said["s"], layout.units[index], piece, text)

    def full(self, file: GuardFile, note: GuardNote) -> None:
        """The sums of all parameters at the start."""
        said = note.said
        layout = self._layouts.get((file.rank, said["o"], said["l"]))
        if layout is None or said["why"] != "start":
            return
        for unit, text in zip(layout.units, _eights(said["u"]), strict=False):
            if text != MOVED:
                self._tell(file, note.line, said["o"], -1, unit, WHOLE, text)

    def _tell(
        self, file: GuardFile, line: int, optimizer: int, step: int, unit: list[str], piece: int, text: str
    ) -> None:
        name, kind, replicas = unit[0], unit[1], unit[2]
        if replicas == APART:
            return
        expected = ranks_of(replicas) if replicas else range(self.world)
        if len(expected) < 2:
            return
        # Tensors of one name that differ in shape are parts of different things.
        key = (optimizer, f"{name}\0{unit[3]}{unit[4]}", kind, replicas, piece)
        waiting = self._pending.setdefault((step, key), {})
        waiting[file.rank] = (text, file, line)
        if len(waiting) == len(expected):
            del self._pending[step, key]
            self._judge(step, key, waiting)
        elif len(self._pending) > MOST_PENDING:
            self._pending.pop(next(iter(self._pending)))

    def settle(self) -> None:
        """No more will come: compare what there is."""
        pending, self._pending = self._pending, {}
        for (step, key), waiting in sorted(pending.items(), key=lambda each: each[0][0]):
            if len(waiting) > 1:
                self._judge(step, key, waiting)
        self._find_adrift()

    def _find_adrift(self) -> None:
        """Parameters that are all apart while others of the same optimizer stay equal: the averaging leaves them out.

        Those that were never equal are shards or experts; where none stays equal, the ranks train by themselves for a
        while."""
        equal: dict[int, int] = {}
        once: dict[tuple[int, str], int] = {}
        for (optimizer, label, kind, _, _), known in self._known.items():
            if kind in _PARAMETERS and known.good is not None:
                once[optimizer, label] = max(known.good, once.get((optimizer, label), -1))
            if kind == _PARAMETERS[0] and len(known.sides) == 1 and known.looks >= LEARNED_AFTER:
                equal[optimizer] = max(known.good or 0, equal.get(optimizer, -1))
        for key, known in sorted(self._known.items(), key=lambda item: (item[1].since, item[0])):
            all_apart = len(known.sides) == len(known.last) > 2 and known.looks >= LEARNED_AFTER
            if key[2] != _PARAMETERS[0] or not all_apart or equal.get(key[0], -1) <= known.since:
                continue
            if (good := once.get(key[:2])) is not None and good < known.since and known.apart:
                known.good = good
                values = {rank: text for rank, (text, _, _) in known.apart.items()}
                self._wrong(known.since, key, known.apart, values, tuple(sorted(values)), learned=True, kind="adrift")

    def _judge(self, step: int, key: _Key, told: dict[int, tuple[str, GuardFile, int]]) -> None:
        values = {rank: text for rank, (text, _, _) in told.items()}
        known = self._known.setdefault(key, _History())
        if MOVED in values.values():
            known.sides, known.looks = frozenset(), 0
            return
        self.compared += 1
        sides = classes(values)
        changed = any(known.last.get(rank) not in (None, text) for rank, text in values.items())
        known.last = values
        sure = bool(key[3])
        if len(sides) == 1:
            known.good = step
            self.verified = max(self.verified, step)
        if sure and len(sides) > 1:
            self._wrong(step, key, told, values, tuple(sorted(values)), learned=False)
        elif not sure:
            self._learn(step, key, told, values, sides, changed=changed)

    def _learn(
        self, step: int, key: _Key, told: dict[int, tuple[str, GuardFile, int]], values: dict[int, str],
        sides: frozenset[frozenset[int]], *, changed: bool,
    ) -> None:  # fmt: skip
        """Nothing says who should be equal: those who were while their values changed should stay so."""
        known = self._known[key]
        if sides == known.sides:
            # What nobody writes to is known as soon as it was equal once.
            known.looks += changed or key[2] in ("buffer", "frozen")
            if known.looks == LEARNED_AFTER and len(sides) > 1 and minority(values):
                # Most are replicas of each other; who was never equal to them missed the start.
                whole = self._known.get((*key[:4], WHOLE))
                first = -1 if whole is not None and whole.sides == sides else known.since
                self._wrong(first, key, told, values, tuple(sorted(values)), learned=True)
            return
        before, looks = known.sides, known.looks
        known.sides, known.looks, known.since = sides, 0, step
        known.apart = told if len(sides) == len(values) else {}
        if looks < LEARNED_AFTER:
            return
        if len(sides) == len(values) > 2:
            return  # all apart at once is another way to train (local steps between averagings), not one rank's fault
        for side in before:
            inside = {rank: values[rank] for rank in side if rank in values}
            if len(side) > 1 and len(set(inside.values())) > 1:
                self._wrong(step, key, told, inside, tuple(sorted(inside)), learned=True)

    def _wrong(
        self, step: int, key: _Key, told: dict[int, tuple[str, GuardFile, int]], values: dict[int, str],
        among: tuple[int, ...], *, learned: bool, kind: Kind = "replica",
    ) -> None:  # fmt: skip
        optimizer, label, tensor, _, piece = key
        name = label.partition("\0")[0]
        if (optimizer, name, tensor) in self._reported:
            return
        self._reported.add((optimizer, name, tensor))
        odd = minority(values)
        first = next((w for w in self.found if (w.kind, w.odd, w.among) == (kind, odd, among)), None)
        if first is not None and first.step <= step:
            first.others += 1
            first.detail.setdefault("also", []).append(f"{name} ({tensor})")
            return
        what = f"{name} ({tensor})"
        at = "before the first step" if step < 0 else f"at step {step}"
        refs = [
            told[rank][1].ref(told[rank][2], f"{what}, {_region(piece)}checksum {told[rank][0]} {at}") for rank in among
        ]
        self.found.append(
            Wrong(kind, step, odd, among, name, tensor, self._good(key), values, spread(refs, odd), learned=learned)
        )

    def _good(self, key: _Key) -> int | None:
        """The last step at which this piece, or the whole tensor at the start, was equal."""
        whole = self._known.get((*key[:4], WHOLE))
        return self._known[key].good if self._known[key].good is not None else (whole.good if whole else None)


def _eights(text: str) -> Iterator[str]:
    return (text[at : at + 8] for at in range(0, len(text) - 7, 8))


def _region(piece: int) -> str:
    return f"MiB {piece}, " if piece > 0 else ""

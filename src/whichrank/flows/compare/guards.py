"""Two runs by the records of their guards: the first step, module and tensor that differ beyond rounding.

Runs that should be twins (same seed, same code, deterministic kernels) have the same checksums. After a change of
software checksums differ at once; then losses and norms of gradients tell whether it is more than rounding.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from whichrank.flows.guard import read
from whichrank.model.difference import Difference
from whichrank.records.guard import GuardFile
from whichrank.timeline.guard.resumes import STATE, Resumes

ROUNDING = 1e-3
"""Relative difference of losses and norms that another order of sums may cause within the first steps."""
MOVED = "--------"


def holds(path: Path) -> bool:
    return bool(read([path])[0])


def compare(a: Path, b: Path) -> tuple[list[Difference], list[str]]:
    first, second = read([a])[0], read([b])[0]
    ours, theirs = _by_rank(first), _by_rank(second)
    ranks = sorted(set(ours) & set(theirs))
    found: list[Difference] = []
    looked = 0
    firsts: list[tuple[int, str, int, str, str]] = []
    for rank in ranks:
        mine, other = _Run(ours[rank]), _Run(theirs[rank])
        found += _starts(rank, mine, other) if rank == ranks[0] else []
        looked += len(mine.sums.keys() & other.sums.keys()) + len(mine.numbers.keys() & other.numbers.keys())
        firsts += _first_sums(rank, mine, other)
        found += _first_numbers(rank, mine, other)
    found += _told(firsts, bool(found))
    found += _resumed(first, second)
    if set(ours) != set(theirs):
        found.append(Difference("ranks", _few(ours), _few(theirs), 0.9, "the runs have other ranks"))
    return found, [f"guard records of {len(ranks)} ranks: {looked:,} values at the same steps"]


class _Run:
    """What one rank wrote: sums by (step, tensor, piece), numbers by (what, step)."""

    def __init__(self, file: GuardFile) -> None:  # noqa: C901 - one branch per kind of record
        self.start: dict[str, Any] = {}
        self.sums: dict[tuple[int, str, str, int], str] = {}
        self.numbers: dict[tuple[str, int], float] = {}
        layouts: dict[tuple[int, str], dict[str, Any]] = {}
        for note in file.notes:
            said = note.said
            if note.kind == "start":
                self.start = said
            elif note.kind == "layout":
                layouts[said["o"], said["id"]] = said
            elif note.kind == "slice" and (said["o"], said["l"]) in layouts:
                layout = layouts[said["o"], said["l"]]
                for (unit, piece), at in zip(layout["pieces"][said["q"]], range(0, len(said["p"]), 8), strict=False):
                    row = layout["units"][unit]
                    self.sums[said["s"], row[0], row[1], piece] = said["p"][at : at + 8]
            elif note.kind == "full" and said["why"] == "start" and (said["o"], said["l"]) in layouts:
                for row, at in zip(layouts[said["o"], said["l"]]["units"], range(0, len(said["u"]), 8), strict=False):
                    self.sums[-1, row[0], row[1], -1] = said["u"][at : at + 8]
            elif note.kind == "loss":
                for step, value in zip(said["s"], said["x"], strict=True):
                    self._number("loss", step, value)
            elif note.kind == "grad":
                self._number("norm of the gradients", said["s"], said.get("n"))
                for index, rate in enumerate(said.get("lr") or []):
                    self._number(f"learning rate {index}", said["s"], rate)
                if isinstance(said.get("b"), list):
                    self.sums[said["s"], "batch", "first samples", 0] = "".join(map(str, said["b"]))

    def _number(self, what: str, step: int, value: Any) -> None:
        if isinstance(value, (int, float)):
            self.numbers[what, step] = float(value)


def _first_sums(rank: int, a: _Run, b: _Run) -> list[tuple[int, str, int, str, str]]:
    """The first step at which checksums differ: step, tensor, rank, and both sums."""
    differing = [
        (key[0], f"{key[1]} ({key[2]})", rank, a.sums[key], b.sums[key])
        for key in a.sums.keys() & b.sums.keys()
        if a.sums[key] != b.sums[key] and MOVED not in (a.sums[key], b.sums[key])
    ]
    first = min((d[0] for d in differing), default=None)
    return sorted(d for d in differing if d[0] == first)


def _first_numbers(rank: int, a: _Run, b: _Run) -> list[Difference]:
    firsts: dict[str, tuple[int, float, float]] = {}
    for what, step in sorted(a.numbers.keys() & b.numbers.keys(), key=lambda key: key[1]):
        mine, other = a.numbers[what, step], b.numbers[what, step]
        limit = 0.0 if what.startswith("learning rate") else ROUNDING
        if what not in firsts and abs(mine - other) > limit * max(abs(mine), abs(other)):
            firsts[what] = (step, mine, other)
    return [
        Difference(f"{what} at step {step} on rank {rank}", f"{mine:.7g}", f"{other:.7g}",
                   0.95 if what.startswith("learning rate") else 0.7, "more than rounding")
        for what, (step, mine, other) in firsts.items()
    ]  # fmt: skip


def _told(firsts: list[tuple[int, str, int, str, str]], beyond: bool) -> list[Difference]:
    if not firsts:
        return []
    step = min(first[0] for first in firsts)
    tensors: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for at, tensor, rank, mine, other in firsts:
        if at == step:
            tensors[tensor].append((rank, mine, other))
    when = "before the first step" if step < 0 else f"at step {step}"
    found = []
    for tensor, rows in list(tensors.items())[:8]:
        ranks = ", ".join(str(rank) for rank, _, _ in rows[:8])
        why = f"the first step at which anything differs; {len(tensors)} tensors do"
        why += "" if beyond else ", losses and norms no more than by rounding"
        suspicion = (0.9 if beyond else 0.3) + (0.05 if tensor.startswith("batch") else 0)
        found.append(Difference(f"{tensor} {when} on rank {ranks}", rows[0][1], rows[0][2], round(suspicion, 2), why))
    return found


def _resumed(saved: list[GuardFile], loaded: list[GuardFile]) -> list[Difference]:
    """Where one run has loaded what the other has saved: tensors that did not come back."""
    return [
        Difference(f"{'state of the optimizer' if wrong.tensor == STATE else f'{wrong.module} ({wrong.tensor})'} after "
                   f"loading {wrong.detail['path']}", "as saved", "none" if wrong.tensor == STATE else "another value",
                   0.95, f"{wrong.detail['count']} tensors are not what the checkpoint held, on rank "
                   f"{', '.join(map(str, wrong.odd[:16]))}")
        for one, other in ((saved, loaded), (loaded, saved))
        for wrong in Resumes.of(one).resumed(other)
    ]  # fmt: skip


def _starts(rank: int, a: _Run, b: _Run) -> list[Difference]:  # noqa: ARG001
    found = []
    for aspect, suspicion in (("versions", 0.6), ("source", 0.6), ("settings", 0.5)):
        mine, other = a.start.get(aspect), b.start.get(aspect)
        if not isinstance(mine, dict) or not isinstance(other, dict):
            continue
        found += [
            Difference(f"{aspect}: {name}", str(mine.get(name)), str(other.get(name)), suspicion, "not the same start")
            for name in sorted(mine.keys() | other.keys())
            if mine.get(name) != other.get(name)
        ]
    return found


def _by_rank(files: list[GuardFile]) -> dict[int, GuardFile]:
    """Of several attempts the newest."""
    return {file.rank: file for file in sorted(files, key=lambda f: f.attempt)}


def _few(ranks: dict[int, GuardFile]) -> str:
    return ", ".join(map(str, sorted(ranks)[:16]))

"""What ranks brought to the collectives of a group, compared call by call."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct, field

from whichrank.records.guard import GuardFile, GuardNote
from whichrank.timeline.guard.wrong import Wrong, minority, spread

ASPECTS = (("op", "operation"), ("d", "data type"), ("n", "elements"), ("red", "reduction"), ("root", "root"))
"""In this order: where the operation differs, the rest may differ for that alone."""
MOST_CALLS = 4_000_000


class _Calls(Struct):
    """The calls of one rank in one group, from `first` on."""

    file: GuardFile
    first: int
    seen: list[str] = field(default_factory=list)
    lines: list[tuple[int, int, float, float]] = field(default_factory=list)
    """Number of a call, the line that tells of it and those behind it, its step, and steps per call."""
    torn: bool = False


class Signatures:
    def __init__(self) -> None:
        self.found: list[Wrong] = []
        self.compared = 0
        self._members: dict[str, tuple[int, ...]] = {}
        self._names: dict[str, str] = {}
        self._known: dict[int, dict[str, dict[str, Any]]] = {}
        self._calls: dict[str, dict[int, _Calls]] = {}
        self._done: dict[str, int] = {}
        self._over: set[str] = set()

    def group(self, file: GuardFile, note: GuardNote) -> None:  # noqa: ARG002
        said = note.said
        self._members[said["g"]] = tuple(said["r"])
        self._names[said["g"]] = str(said.get("d") or said["g"])[:80]

    def signature(self, file: GuardFile, note: GuardNote) -> None:
        self._known.setdefault(file.rank, {})[note.said["id"]] = note.said

    def calls(self, file: GuardFile, note: GuardNote) -> None:
        said = note.said
        group = said["g"]
        if group in self._over:
            return
        signatures = said["x"][0] * said["x"][1]
        mine = self._calls.setdefault(group, {}).get(file.rank)
        if mine is None:
            mine = self._calls[group][file.rank] = _Calls(file, said["n"])
        if mine.first + len(mine.seen) != said["n"] or len(mine.seen) > MOST_CALLS:
            mine.torn = True  # some calls were lost: what follows can't be numbered
        if not mine.torn:
            mine.lines.append((said["n"], note.line, *_pace(said.get("s"), len(signatures))))
            mine.seen += signatures
            self._advance(group)

    def _advance(self, group: str) -> None:
        """Compare as far as all members have told."""
        members = self._members.get(group, ())
        told = self._calls[group]
        if len(members) < 2 or any(rank not in told for rank in members):
            return
        done = max(self._done.get(group, 0), *(told[rank].first for rank in members))
        end = min(told[rank].first + len(told[rank].seen) for rank in members)
        if end <= done:
            return
        first = told[members[0]]
        ours = first.seen[done - first.first : end - first.first]
        for rank in members[1:]:
            theirs = told[rank].seen[done - told[rank].first : end - told[rank].first]
            if theirs != ours:
                number = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
                end = min(end, done + number)
                ours = ours[:number]
                self._over.add(group)
        self.compared += len(ours)
        self._done[group] = end
        if group in self._over:
            self._differ(group, members, end)
            return
        for rank in members:  # what has been compared need not be kept
            mine = told[rank]
            del mine.seen[: end - mine.first]
            mine.first = end
            while len(mine.lines) > 1 and mine.lines[1][0] <= end:
                mine.lines.pop(0)

    def _differ(self, group: str, members: tuple[int, ...], number: int) -> None:
        told = self._calls[group]
        brought = {
            rank: self._known.get(rank, {}).get(told[rank].seen[number - told[rank].first], {}) for rank in members
        }
        if not all(brought.values()):
            return  # a signature that was not kept: nothing can be said
        aspect, words = next(
            ((key, words) for key, words in ASPECTS if len({str(b.get(key)) for b in brought.values()}) > 1), ("", "")
        )
        if not aspect:
            return
        values = {rank: str(b.get(aspect)) for rank, b in brought.items()}
        odd = minority(values)
        refs = []
        for rank in members:
            line = _run(told[rank], number)[1]
            refs.append(
                told[rank].file.ref(line, f"call {number} of group {self._names[group]}: {shown(brought[rank])}")
            )
        chosen = odd[0] if odd else members[0]
        first, _, step, pace = _run(told[chosen], number)
        detail = {
            "aspect": words,
            "call": number,
            "op": Counter(str(b.get("op")) for b in brought.values()).most_common(1)[0][0],
            "at": {rank: str(b.get("at", "")) for rank, b in brought.items()},
            "place": str(brought[chosen].get("at")),
        }
        at, among = int(step + (number - first) * pace + 0.5), tuple(sorted(members))
        name = self._names[group]
        self.found.append(Wrong("signature", at, odd, among, name, aspect, None, values, spread(refs, odd), detail))


def _run(calls: _Calls, number: int) -> tuple[int, int, float, float]:
    return max((run for run in calls.lines if run[0] <= number), default=(number, 1, 0.0, 0.0))


def _pace(steps: Any, calls: int) -> tuple[float, float]:
    """The step of the first call, and steps per call."""
    if (
        not isinstance(steps, list)
        or len(steps) != 2
        or not all(isinstance(s, int) and 0 <= s < 1 << 62 for s in steps)
    ):
        return 0.0, 0.0
    return float(steps[0]), (steps[1] - steps[0]) / max(calls - 1, 1)


def shown(said: dict[str, Any]) -> str:
    """`all_reduce(MAX, 64 elements of float32) at train.py:12 step`."""
    parts = [str(said["red"])] if said.get("red") else []
    if isinstance(said.get("n"), int) and said["n"] >= 0:
        parts.append(f"{said['n']} elements of {said.get('d')}")
    elif said.get("d"):
        parts.append(str(said["d"]))
    if isinstance(said.get("root"), int) and said["root"] >= 0:
        parts.append(f"root {said['root']}")
    return f"{said.get('op')}({', '.join(parts)}) at {said.get('at', '?')}"

"""Losses, batches and gradients of ranks before they are reduced, step by step: where a NaN or an outlier began."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Any

from whichrank.records.guard import GuardFile, GuardNote
from whichrank.timeline.guard.wrong import Wrong, spread

NAN, INFINITE, LEAST = 255, 254, 1
"""Codes of norms; from 1 to 253 a step is a quarter of an octave."""
QUIET = 6
"""Steps from which is learned how much norms of ranks differ by themselves."""
FAR = 24
"""Quarters of an octave above all others (64 times as much), and three times as far as ever before."""
MOST_PENDING = 4096
MOST_LOST = 3

_Told = tuple[GuardFile, int, dict[str, Any]]


class Gradients:
    def __init__(self, world: int) -> None:
        self.world = world
        self.found: list[Wrong] = []
        self.compared = 0
        self.units: dict[int, list[str]] = {}
        """Names of the parameters of an optimizer, in order."""
        self._pending: dict[tuple[int, int], dict[int, _Told]] = {}
        self._totals: dict[int, deque[float]] = {}
        self._spread: dict[int, float] = {}
        self._steps: dict[int, int] = {}
        self._bad: dict[tuple[int, int], dict[int, _Told]] = {}
        """Losses and gradients that are not finite, by optimizer and step."""
        self._last: dict[int, tuple[int, bool]] = {}
        """By rank: the newest step, and whether all was finite."""
        self._finite: dict[tuple[int, int], int] = {}
        self._outliers: list[Wrong] = []
        self._twins: dict[tuple[int, int], list[Any]] = {}
        self.apart: dict[int, tuple[int, ...]] = {}
        """By optimizer: ranks that must have batches of their own."""

    def parameters(self, optimizer: int, units: list[list[Any]]) -> None:
        names = [str(unit[0]) for unit in units if unit[1] == "parameter"]
        if optimizer not in self.units or len(names) >= len(self.units[optimizer]):
            self.units[optimizer] = names

    def loss(self, file: GuardFile, note: GuardNote) -> None:
        said = note.said
        for step, value in zip(said["s"], said["x"], strict=True):
            finite = isinstance(value, (int, float))
            self._see(file, said["o"], step, finite=finite)
            if not finite:
                told = {"what": "loss", "value": str(value)[:8]}
                self._bad.setdefault((said["o"], step), {}).setdefault(file.rank, (file, note.line, told))

    def gradient(self, file: GuardFile, note: GuardNote) -> None:
        said = note.said
        codes = _codes(said.get("g"))
        bad = [index for index, code in enumerate(codes) if code >= INFINITE]
        if bad and not said.get("scaled"):
            told = {"what": "gradient", "bad": bad, "of": len(codes), "sharded": said.get("sharded"),
                    "value": "nan" if NAN in codes else "inf", "batch": said.get("i")}  # fmt: skip
            self._bad.setdefault((said["o"], said["s"]), {})[file.rank] = (file, note.line, told)
        self._see(file, said["o"], said["s"], finite=bool(codes) and not bad)
        waiting = self._pending.setdefault((said["o"], said["s"]), {})
        waiting[file.rank] = (file, note.line, said)
        if len(waiting) == self.world:
            del self._pending[said["o"], said["s"]]
            self._compare(said["o"], said["s"], waiting)
        elif len(self._pending) > MOST_PENDING:
            self._pending.pop(next(iter(self._pending)))

    def _see(self, file: GuardFile, optimizer: int, step: int, *, finite: bool) -> None:
        if finite:
            key = (optimizer, file.rank)
            self._finite[key] = max(self._finite.get(key, -1), step)

    # -- outliers

    def _compare(self, optimizer: int, step: int, told: dict[int, _Told]) -> None:
        self.compared += 1
        self._same_batch(optimizer, step, told)
        totals = {
            rank: float(said["n"])
            for rank, (_, _, said) in told.items()
            if isinstance(said.get("n"), (int, float)) and said["n"] > 0 and not said.get("scaled")
        }
        infinite = [r for r, (_, _, said) in told.items() if INFINITE in _codes(said.get("g"))]
        if len(totals) < self.world and not infinite:
            return
        recent = self._totals.setdefault(optimizer, deque(maxlen=16))
        if len(recent) >= QUIET and totals:
            base = median([*recent, median(totals.values())]) if len(totals) < 3 else median(
                [*totals.values(), *recent]
            )  # fmt: skip
            limit = max(2.0 ** (FAR / 4), 2.0 * self._spread.get(optimizer, 1.0) ** 2)
            far = [rank for rank, total in totals.items() if base > 0 and total / base > limit]
            if far and len(far) * 2 <= self.world:
                self._outlier(optimizer, step, told, tuple(far), max(totals[r] / base for r in far))
                return  # what is wrong teaches nothing about what is usual
        if len(totals) == self.world:
            middle = median(totals.values())
            recent.append(middle)
            widest = max(max(t / middle, middle / t) for t in totals.values())
            self._spread[optimizer] = max(self._spread.get(optimizer, 1.0), widest)

    def _outlier(self, optimizer: int, step: int, told: dict[int, _Told], far: tuple[int, ...], ratio: float) -> None:
        if any(w.detail["optimizer"] == optimizer and w.odd == far for w in self._outliers):
            return
        rank = far[0]
        codes = {r: _codes(said.get("g")) for r, (_, _, said) in told.items()}
        width = min(len(c) for c in codes.values())
        rest = [r for r in codes if r not in far]
        jumps = [codes[rank][i] - median(codes[r][i] for r in rest) for i in range(width)] if rest else []
        index = max(range(width), key=lambda i: jumps[i]) if jumps else 0
        refs = [
            file.ref(line, f"norm of the local gradient {said.get('n')} at step {step}")
            for _, (file, line, said) in told.items()
        ]
        self._outliers.append(
            Wrong("outlier", step, far, tuple(sorted(told)), self._name(optimizer, index, width), "gradient", None,
                  {r: str(said.get("n")) for r, (_, _, said) in told.items()}, spread(refs, far),
                  {"ratio": ratio, "optimizer": optimizer})
        )  # fmt: skip

    # -- the same batch twice

    def _same_batch(self, optimizer: int, step: int, told: dict[int, _Told]) -> None:
        members = self.apart.get(optimizer, ())
        rows = {r: tuple(map(str, said["b"])) for r, (_, _, said) in told.items() if isinstance(said.get("b"), list)}
        by_rows: dict[tuple[str, ...], list[int]] = {}
        for rank in members:
            if rows.get(rank):
                by_rows.setdefault(rows[rank], []).append(rank)
        for shared, ranks in by_rows.items():
            for other in ranks[1:]:
                kept = self._twins.setdefault((ranks[0], other), [set(), 0, step, told])
                kept[0].add(shared)
                kept[1] += 1
        for pair, kept in self._twins.items():
            if rows.get(pair[0]) != rows.get(pair[1]):
                kept[1] = -(1 << 30)  # once they differed they are not fed the same

    def twins(self) -> list[Wrong]:
        """Ranks that were fed the same batches at every step, while batches changed."""
        same = {pair: kept for pair, kept in self._twins.items() if kept[1] >= QUIET and len(kept[0]) > kept[1] // 2}
        if not same:
            return []
        sides: list[set[int]] = []
        for pair in same:
            side = next((s for s in sides if s & set(pair)), None)
            sides.append(set(pair)) if side is None else side.update(pair)
        _, _, step, told = next(iter(same.values()))
        among = tuple(sorted(set().union(*sides)))
        refs = [
            told[r][0].ref(told[r][1], f"batch {' '.join(map(str, told[r][2]['b']))} at step {step}") for r in among
        ]
        return [
            Wrong("batch", step, (), among, tensor="batch", refs=refs[:4], detail={"sides": [sorted(s) for s in sides]})
        ]

    # -- what is not finite

    def settle(self) -> list[Wrong]:
        """All that was wrong so far, by what is known by now."""
        return [*self._origin(), *self._outliers, *self.twins()]

    def _origin(self) -> list[Wrong]:
        """The first step that somebody took with values that were not finite."""
        for (optimizer, step), told in sorted(self._bad.items(), key=lambda each: each[0][1]):
            lasting = any(self._finite.get((optimizer, rank), -1) <= step + MOST_LOST for rank in told)
            # A gradient was stepped with, or it would not have been told; a loss alone may have been left out.
            if not lasting and all(said["what"] == "loss" for _, _, said in told.values()):
                continue
            everybody = len(told) >= self.world
            # A loss is of its own step; a gradient of one rank is told at the same step as those of the others.
            odd = () if everybody else tuple(sorted(told))
            heads = {r: t[2] for r, t in told.items()}
            rank = odd[0] if odd else min(told)
            return [
                Wrong("nan", step, odd, tuple(range(self.world)), self._where(optimizer, heads[rank]),
                      str(heads[rank]["what"]), step - 1, {r: str(h["value"]) for r, h in heads.items()},
                      spread([f.ref(line, _quote(h, step)) for f, line, h in told.values()], odd),
                      {"batch": heads[rank].get("batch"), "everybody": everybody, "lasting": lasting})
            ]  # fmt: skip
        return []

    def _where(self, optimizer: int, said: dict[str, Any]) -> str:
        """The parameter nearest to the loss whose gradient is not finite, unless all are."""
        bad = said.get("bad")
        if not bad or said.get("sharded") or len(bad) == said["of"]:
            return ""
        return self._name(optimizer, max(bad), said["of"])

    def _name(self, optimizer: int, index: int, count: int) -> str:
        names = self.units.get(optimizer, [])
        return names[index] if len(names) == count and index < count else ""


def _codes(text: Any) -> bytes:
    try:
        return bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return b""


def _quote(said: dict[str, Any], step: int) -> str:
    if said["what"] == "loss":
        return f"loss {said['value']} at step {step}"
    return f"{len(said['bad'])} of {said['of']} local gradients {said['value']} at step {step}"

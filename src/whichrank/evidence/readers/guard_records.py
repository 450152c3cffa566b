"""Records of the guard: what replicas had in common, as each rank wrote it down (`whichrank run --guard`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.guard import FIRST, GuardFile, GuardNote

NAME = "guard_records"

_MOST = 64 << 20
_MOST_LINES = 500_000
_WORLD = 1 << 20
_HEX = frozenset("0123456789abcdef-")
# What every kind must have, with its type; the rest is looked at by whoever needs it.
_SHAPES: dict[str, dict[str, type | tuple[type, ...]]] = {
    "start": {"rank": int, "world": int},
    "gpu": {"serial": str},
    "layout": {"id": str, "o": int, "units": list, "pieces": list, "parts": int},
    "slice": {"o": int, "s": int, "l": str, "q": int, "p": str},
    "full": {"o": int, "s": int, "l": str, "u": str, "why": str},
    "grad": {"o": int, "s": int},
    "loss": {"o": int, "s": list, "x": list},
    "group": {"g": str, "r": list},
    "sig": {"id": str, "op": str},
    "calls": {"g": str, "n": int, "x": list},
    "save": {"s": int, "path": str},
    "load": {"path": str},
    "plan": {"gradients": int, "slices": int},
    "sampler": {},
    "scheduler": {"at": str},
    "replay": {"o": int, "s": int, "same": bool},
    "off": {"why": str},
}


def sniff(head: bytes, name: str) -> bool:  # noqa: ARG001
    return head.startswith(FIRST)


def read(item: Item) -> Reading:
    """One `GuardFile`; lines that say nothing known are left out, a torn last line too."""
    if item.size > _MOST:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB are no records of a guard")
    reading = Lines(item.label)
    *lines, rest = item.read().split(b"\n")
    reading.feed(lines)
    if reading.file is None:
        why = f": {reading.off}" if reading.off else ""
        return Reading(quality="partial", note=f"the guard did not begin{why}")
    if reading.bad or rest:
        return Reading([reading.file], "partial", f"{reading.bad + bool(rest)} lines could not be read")
    return Reading([reading.file], note=f"the guard had a problem of its own: {reading.off}" if reading.off else "")


class Lines:
    """Lines in, a growing `GuardFile` out; also for a file that is still being written."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.file: GuardFile | None = None
        self.bad = self.number = 0
        self.off = ""
        self._decode = msgspec.json.Decoder().decode

    def feed(self, lines: Iterable[bytes]) -> list[GuardNote]:
        """The notes that were new in these lines."""
        fresh = []
        for line in lines:
            self.number += 1
            note = self._note(line) if self.number <= _MOST_LINES else None
            if note is None:
                self.bad += bool(line.strip())
            elif self.file is not None:
                self.file.notes.append(note)
                fresh.append(note)
        return fresh

    def _note(self, line: bytes) -> GuardNote | None:
        try:
            said = self._decode(line) if line.strip() else None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        if not isinstance(said, dict) or not _fits(said):
            return None
        if said["t"] == "start" and self.file is None:
            self.file = _begun(self.label, said)
        if said["t"] == "gpu" and self.file is not None:
            self.file.gpu_serial = said["serial"][:64]
        if said["t"] == "off":
            self.off = said["why"][:300]
        return GuardNote(self.number, said)


def _fits(said: dict[str, Any]) -> bool:
    kind = said.get("t")
    shape = _SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None or any(not isinstance(said.get(key), wanted) for key, wanted in shape.items()):
        return False
    if any(isinstance(said.get(key), int) and not 0 <= said[key] < 1 << 62 for key in ("s", "o", "q", "parts")):
        return False
    if any(
        isinstance(text := said.get(key), str) and not _HEX.issuperset(text)
        for key in ("p", "u", "g")
        if kind not in ("group", "calls")
    ):
        return False
    check = _CHECKS.get(str(kind))
    return check is None or check(said)


def _layout_fits(said: dict[str, Any]) -> bool:
    units, pieces = said["units"], said["pieces"]
    if not all(
        isinstance(u, list) and len(u) >= 5 and all(isinstance(part, str) for part in (*u[:3], u[4])) for u in units
    ):
        return False
    return len(pieces) == said["parts"] <= 65_536 and all(
        isinstance(part, list)
        and all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], int) and 0 <= p[0] < len(units) for p in part)
        for part in pieces
    )


def _calls_fit(said: dict[str, Any]) -> bool:
    packed = said["x"]
    return bool(said["n"] >= 0) and (
        len(packed) == 2
        and isinstance(packed[0], list)
        and isinstance(packed[1], int)
        and all(isinstance(each, str) for each in packed[0])
        and 0 < len(packed[0]) * packed[1] <= 1 << 20
    )


def _group_fits(said: dict[str, Any]) -> bool:
    return all(isinstance(rank, int) and 0 <= rank < _WORLD for rank in said["r"])


def _start_fits(said: dict[str, Any]) -> bool:
    return bool(0 <= said["rank"] < said["world"] <= _WORLD)


def _loss_fits(said: dict[str, Any]) -> bool:
    steps, values = said["s"], said["x"]
    return len(steps) == len(values) and all(isinstance(step, int) for step in steps)


_CHECKS = {
    "layout": _layout_fits, "calls": _calls_fit, "group": _group_fits, "start": _start_fits, "loss": _loss_fits,
}  # fmt: skip


def _begun(label: str, said: dict[str, Any]) -> GuardFile:
    told = said.get("gpu")
    gpu: dict[str, Any] = told if isinstance(told, dict) else {}
    index, uuid = gpu.get("index"), gpu.get("uuid")
    attempt, host, pid = said.get("attempt"), said.get("host"), said.get("pid")
    return GuardFile(
        label,
        said["rank"],
        said["world"],
        attempt if isinstance(attempt, int) else 0,
        host if isinstance(host, str) else None,
        pid if isinstance(pid, int) else None,
        index if isinstance(index, int) else None,
        uuid if isinstance(uuid, str) and uuid else None,
    )

"""What the page shows: the job, its ranks grouped by what they do, alarms and the verdict, as one small document."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from whichrank.evidence.collectors import conditions
from whichrank.run.monitoring.monitors import job_name
from whichrank.run.watch.capture.files import document
from whichrank.run.watch.rank_table import Row
from whichrank.run.watch.samples import NAME

MOST_ROWS = 128
"""Ranks that are told one by one; of more than these, the first ones. Who keeps others waiting comes first."""
MOST_GROUPS, MOST_ALARMS, MOST_TILES = 12, 8, 1 << 17
UNHEARD = "u"
HISTORY = 1 << 20
_LETTERS = {
    "stopped": "s", "interpreter held": "s", "ended": "e", "gone": "g", "running": "r", "working": "r", "idle": "i",
}  # fmt: skip


@dataclass(slots=True)
class LastSamples:
    """The last line of the history of each rank: memory and GPU. Only what was added since the last look is read."""

    path: Path
    _read_to: int = 0
    _last: dict[int, dict[str, Any]] = field(default_factory=dict)

    def newest(self) -> dict[int, dict[str, Any]]:
        try:
            with self.path.open("rb") as stream:
                size = stream.seek(0, 2)
                if size < self._read_to:  # another attempt began it anew
                    self._read_to, self._last = 0, {}
                begin = stream.seek(max(self._read_to, size - HISTORY))
                data = stream.read(HISTORY)
        except OSError:
            return self._last
        lines, _, half = data.rpartition(b"\n")
        self._read_to = begin + len(data) - len(half)
        for line in lines.splitlines():
            self._note(line)
        return self._last

    def _note(self, line: bytes) -> None:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return
        if isinstance(row, dict) and isinstance(row.get("rank"), int):
            before = self._last.get(row["rank"], {}).get("gpu")
            self._last[row["rank"]] = {**row, "gpu": row["gpu"] if isinstance(row.get("gpu"), dict) else before}


@dataclass(slots=True)
class State:
    """Keeps what was read from files until they change."""

    out: Path
    job: str = ""
    _seen: dict[str, tuple[int, Any]] = field(default_factory=dict)
    _samples: LastSamples = field(init=False)

    def __post_init__(self) -> None:
        self._samples = LastSamples(self.out / NAME)

    def document(self, rows: Sequence[Row], hosts: dict[int, str] | None = None, now: str = "") -> str:
        """One line of JSON; `now` is the state of the job where the caller knows better than run.json."""
        run = self._read("run.json")
        world = run.get("world_size")
        found = {
            "t": round(time.time(), 1),
            "job": self.job or self._command() or self.out.name,
            "out": str(self.out),
            "state": now or str(run.get("state") or "unknown"),
            "exit_code": run.get("exit_code"),
            "world": world if isinstance(world, int) else len(rows),
            "seen": len(rows),
            "attempt": int(run.get("attempts") or 1),
            "rate": _middle([row.rate for row in rows]),
            "steps": _middle([row.step_rate for row in rows]),
            "step": max((row.step for row in rows), default=0),
            "issued": max((row.issued for row in rows), default=0),
            "tiles": tiles(rows),
            "first": rows[0].rank if rows else 0,
            "groups": groups(rows),
            "rows": self._rows(rows, hosts or {}),
            "alarms": [_alarm(a) for a in _dicts(run.get("alarms"))[-MOST_ALARMS:]],
            "slow": [
                {"rank": s.get("rank"), "place": _short(s.get("place"))} for s in _dicts(run.get("stragglers"))[:4]
            ],
            "verdict": self._verdict(),
        }
        return json.dumps(found, separators=(",", ":"))

    def _rows(self, rows: Sequence[Row], hosts: dict[int, str]) -> list[list[Any]]:
        shown = rows if len(rows) <= MOST_ROWS else sorted(rows, key=lambda row: (-row.late_s, row.rank))[:MOST_ROWS]
        samples = self._samples.newest()
        found = []
        for row in sorted(shown, key=lambda row: (not row.late_s, row.rank)):
            sample = samples.get(row.rank, {})
            gpu: dict[str, Any] = sample.get("gpu") or {}
            memory = sample.get("memory_bytes")
            found.append([
                row.rank, hosts.get(row.rank, ""), letter(row), row.doing[:80], row.step, _round(row.rate),
                _round(row.late_s), _round(row.quiet_s), memory >> 20 if isinstance(memory, int) else None,
                gpu.get("utilization_percent"), gpu.get("memory_mib"), gpu.get("temperature_c"),
                bool(gpu.get("slowed_by")), _short(row.place), row.pid,
            ])  # fmt: skip
        return found

    def _command(self) -> str:
        """The script of the job that somebody else started."""
        words = self._read(conditions.FILE).get("command")
        return job_name([str(word) for word in words]) if isinstance(words, list) else ""

    @property
    def ended(self) -> bool:
        return self._read("run.json").get("state") == "ended"

    def _verdict(self) -> dict[str, Any] | None:
        said = self._read("verdict.json")
        verdict = said.get("verdict")
        if not isinstance(verdict, dict):
            return None
        who = verdict.get("culprits") or {}
        return {
            "category": verdict.get("category"),
            "cause": verdict.get("cause"),
            "confidence": verdict.get("confidence"),
            "summary": verdict.get("summary"),
            "ranks": (who.get("ranks") or [])[:32],
            "candidates": (who.get("candidates") or [])[:32],
            "hosts": (who.get("hosts") or [])[:8],
            "code": [f"{_short(c.get('file'))}:{c.get('line')}" for c in _dicts(who.get("code"))[:3]],
            "fix": [str(step)[:400] for step in (verdict.get("fix") or [])[:4]],
            "next": [str(step.get("command"))[:300] for step in _dicts(said.get("next"))[:2]],
        }

    def _read(self, name: str) -> dict[str, Any]:
        return dict(self._kept(name, document) or {})

    def _kept(self, name: str, read: Any) -> Any:
        try:
            stamp = (self.out / name).stat().st_mtime_ns
        except OSError:
            self._seen.pop(name, None)
            return None
        if name not in self._seen or self._seen[name][0] != stamp:
            self._seen[name] = (stamp, read(self.out / name))
        return self._seen[name][1]


def letter(row: Row) -> str:
    """One letter for what a rank does: late, waiting, running, starting, stopped, ended, gone."""
    return "l" if row.late_s else _letter_of(row.doing)


@lru_cache(256)
def _letter_of(doing: str) -> str:
    if doing.startswith("waiting in"):
        return "w"
    return _LETTERS.get(doing, "r" if doing.startswith("in ") else "b")


def tiles(rows: Sequence[Row]) -> str:
    """A letter per rank from the first to the last; a rank that nothing is heard of has a place all the same."""
    if not rows:
        return ""
    known = {row.rank: letter(row) for row in rows}
    first, last = rows[0].rank, min(rows[-1].rank, rows[0].rank + MOST_TILES)
    return "".join(known.get(rank, UNHEARD) for rank in range(first, last + 1))


def groups(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Ranks that do the same at the same place, the few first: they are the interesting ones."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((letter(row), row.doing, _short(row.place)), []).append(row)
    ordered = sorted(found.items(), key=lambda item: (item[0][0] != "l", item[0][0] not in "gs", -len(item[1])))
    return [
        {
            "letter": key[0], "doing": key[1][:80], "place": key[2], "count": len(members),
            "ranks": spans([m.rank for m in members]), "late": _round(max(m.late_s for m in members)),
            "quiet": _round(min(m.quiet_s for m in members)),
        }
        for key, members in ordered[:MOST_GROUPS]
    ]  # fmt: skip


def spans(ranks: Sequence[int], most: int = 8) -> str:
    """`0-3, 7`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    told = [str(a) if a == b else f"{a}-{b}" for a, b in parts[:most]]
    return ", ".join(told) + (" …" if len(parts) > most else "")


def _alarm(alarm: dict[str, Any]) -> dict[str, Any]:
    return {
        "time": alarm.get("time"), "level": alarm.get("level"), "why": str(alarm.get("why"))[:300],
        "withdrawn": bool(alarm.get("withdrawn")),
    }  # fmt: skip


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _short(place: Any) -> str:
    """`train.py:118 step` of a whole path."""
    return str(place or "").rsplit("/", 1)[-1][:120]


def _middle(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return round(median(known), 3) if known else None


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)

"""The small history of a watched job: one line per rank and interval, so that the time before the trouble is known.

`history.jsonl` has one JSON object a line:

- `time` (RFC 3339), `rank`, `pid`
- `phase`: what the process has reached ("joined" in steady state)
- `issued`, `completed`: collectives so far, over all groups; `waiting`: inside one, or one is pending
- `cpu_s`: seconds of CPU so far; `memory_bytes`: resident; null where that may not be known
- `place`: the innermost line of the training code
- `gpu`: every half minute what NVML says of the GPU that the local rank means (`index`, `utilization_percent`,
  `memory_mib`, `temperature_c`, `power_w`, `slowed_by`: the mask of reasons that are not harmless), else null
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichrank.evidence.bundle import now
from whichrank.evidence.collectors import gpus, processes
from whichrank.model import last_words as layout
from whichrank.run.watch.job_processes import TICKS_PER_S, Member

NAME, OLDER = "history.jsonl", "history.older.jsonl"
EVERY_S = 5.0
MOST = 4 << 20
"""Bytes of one file: then it becomes the older one, and the one before it goes."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class History:
    """Writes it while the job runs."""

    out: Path
    sampler: gpus.Sampler = field(default_factory=gpus.Sampler)
    _next: float = 0.0
    _visible: dict[int, dict[str, str]] = field(default_factory=dict)

    def look(self, now_s: float, ranks: Sequence[Member]) -> None:
        """Lines for all ranks, when it is time; an OSError where they can't be written."""
        if now_s < self._next or not ranks:
            return
        if not self._next:
            self.sampler.start()
        self._next = now_s + EVERY_S
        heard = self.sampler.take()
        lines = [json.dumps(self._line(member, heard)) + "\n" for member in ranks]
        path = self.out / NAME
        if path.exists() and path.stat().st_size > MOST:
            path.replace(self.out / OLDER)
        # Never through a link that somebody else has put there.
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8") as stream:
            stream.writelines(lines)

    def close(self) -> None:
        self.sampler.stop()

    def _line(self, member: Member, heard: dict[str, dict[str, Any]]) -> dict[str, Any]:
        words = member.words
        row = processes.stat(words.pid)
        return {
            "time": now(),
            "rank": words.rank,
            "pid": words.pid,
            "phase": layout.PHASES[words.phase],
            "step": words.steps or None,
            "issued": words.enqueued,
            "completed": words.completed,
            "waiting": words.waiting,
            "cpu_s": round(row.cpu_ticks / TICKS_PER_S, 2) if row else None,
            "memory_bytes": _resident(words.pid),
            "place": words.place[-160:],
            "gpu": gpus.of_rank(self._seen_by(words.pid), words.local_rank, heard) if heard else None,
        }

    def _seen_by(self, pid: int) -> dict[str, str]:
        if pid not in self._visible:
            self._visible[pid] = processes.environ(pid)
        return self._visible[pid]


def _resident(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None

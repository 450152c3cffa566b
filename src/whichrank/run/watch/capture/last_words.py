"""The last words of every process of a job, as a document."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

from whichrank.evidence.bundle import Bundle
from whichrank.evidence.collectors import processes
from whichrank.model import last_words as layout
from whichrank.run.watch.job_processes import JobProcesses, Member


def keep_words(job_processes: JobProcesses, bundle: Bundle) -> None:
    ranks = job_processes.ranks()
    parents = {m.words.parent for m in ranks}
    launchers = [m for m in job_processes.members.values() if m.words.pid in parents and not m.words.is_rank]
    document = {
        "whichrank_last_words": 1,
        "host": bundle.host,
        "taken_ns": time.time_ns(),
        "processes": [told(m) for m in ranks],
        "launchers": [told(m) for m in launchers],
    }
    text = json.dumps(document, indent=1) + "\n"
    bundle.add("last_words.json", text.encode(), "last words")


def told(member: Member) -> dict[str, Any]:
    """The last words of a process, and how it ended, as plain values."""
    words = member.words
    code, number = processes.outcome(member.status) if member.status is not None else (None, None)
    return {
        "rank": words.rank,
        "pid": words.pid,
        "world_size": words.world if words.world > 0 else None,
        "attempt": words.attempt,
        "phase": layout.PHASES[words.phase],
        "alive": member.alive,
        "state": member.state or None,
        "exit_code": code,
        "signal": number,
        "signal_name": _name(number),
        "ended_ns": member.ended_ns,
        "started_ns": words.started_ns,
        "heard_ns": words.beat_ns,
        "changed_ns": words.changed_ns,
        "step": words.steps or None,
        "issued": words.enqueued,
        "completed": words.completed,
        "waiting": words.waiting,
        "still_s": round(max(0, words.beat_ns - words.still_ns) / 1e9, 1) if words.still_ns else None,
        "in": words.operation or None,
        "activity": words.activity or None,
        "place": words.place or None,
        "error": _error(words.error),
    }


def _error(text: str) -> str | None:
    """The kind of exception that ended it; trouble of the watch inside it is not the job's."""
    kind = text.partition(":")[0]
    return kind if kind and kind != "whichrank" else None


def _name(number: int | None) -> str | None:
    return signal.Signals(number).name if number in list(signal.Signals) else None

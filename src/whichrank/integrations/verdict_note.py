"""The verdict on a failure, added to the trainer's own error as a note.

The watcher outside of the job gives the verdict. Where a rank fails before there is one, because another rank has gone,
the last words of the ranks on this host say who was first.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from whichrank.model import last_words as layout
from whichrank.model.files import replace_text
from whichrank.worker.startup import FOLDER

MOST = 4096
LARGEST = 64 << 20
RAISED = ".raised"
_OURS = str(Path(__file__).parent)


def attach(error: BaseException) -> str:
    """Add what is known to the error; what was added, or nothing. Never raises."""
    try:
        folder = os.environ.get(FOLDER)
        if not folder or any(str(note).startswith("whichrank: ") for note in getattr(error, "__notes__", ())):
            return ""
        note = _known(Path(folder), error)
        if note:
            _add(error, note)
        return note
    except Exception:  # noqa: BLE001 - the trainer's own error is what counts
        return ""


def _known(folder: Path, error: BaseException) -> str:
    """The verdict of this attempt; or else which rank failed before this one."""
    everybody = _all_words(folder)
    own = next((words for words in everybody if words.pid == os.getpid()), layout.Words())
    first = _raised_before(folder, own)
    _note_raised(folder, own, error)
    out = _results(folder)
    told = (_verdict(out, own.started_ns) if out else "") or first or _failed_before(everybody, own)
    if not out:
        return f"whichrank: {told}" if told else ""
    if told:
        return f"whichrank: {told}\nwhichrank: the evidence and the report are in {out}"
    return f"whichrank: the verdict follows when the job has ended, in {out}"


def _results(folder: Path) -> Path | None:
    try:
        return Path((folder / "results").read_text(encoding="utf-8").rstrip("\n"))
    except (OSError, ValueError):
        return None


def _verdict(out: Path, began_ns: int) -> str:
    """What verdict.json says, if it was written since this process began."""
    file = out / "verdict.json"
    try:
        status = file.stat()
        if status.st_size > LARGEST or status.st_mtime_ns < began_ns:
            return ""
        verdict: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["verdict"]
        if verdict["category"] in ("healthy", "unknown"):
            return ""
        steps = "".join(f"\n  {number}. {step}" for number, step in enumerate(verdict["fix"], 1))
        told = f"{verdict['summary']} ({verdict['cause']}, {round(100 * verdict['confidence'])} % sure){steps}"
        return told[:MOST]
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _note_raised(folder: Path, own: layout.Words, error: BaseException) -> None:
    """For the other ranks of this host: trainers leave the group before the error ends the process."""
    told = {"rank": own.rank, "time_ns": time.time_ns(), "error": f"{type(error).__name__}: {error}"[:300],
            "place": _place(error)}  # fmt: skip
    replace_text(folder / f"{own.pid}.{own.start_ticks}{RAISED}", json.dumps(told), mode=0o600)


def _raised_before(folder: Path, own: layout.Words) -> str:
    """What another rank has raised since this one began; failures of earlier attempts are older."""
    found = []
    for path in sorted(folder.glob(f"*{RAISED}"))[:4096]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(path.read_text(encoding="utf-8"))
            if told["time_ns"] > own.started_ns and told["rank"] != own.rank:
                found.append((told["time_ns"], told["rank"], told["error"], told["place"]))
    return _first(*min(found)[1:]) if found else ""


def _failed_before(everybody: list[layout.Words], own: layout.Words) -> str:
    """A rank without a callback that has ended with an error."""
    failed = [
        words for words in everybody
        if words.is_rank and words.phase == layout.FAILED and words.pid != own.pid and words.changed_ns > own.started_ns
    ]  # fmt: skip
    first = min(failed, key=lambda words: words.changed_ns, default=None)
    return _first(first.rank, first.error, first.place) if first is not None else ""


def _first(rank: int, error: str, place: str) -> str:
    return f"rank {rank} failed before this one: {error}{f' (at {place})' if place else ''}"[:MOST]


def _place(error: BaseException) -> str:
    """The innermost line of the training code in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = ("site-packages", "dist-packages", sys.base_prefix, "<frozen", _OURS)
    own = [frame for frame in frames if not any(word in frame.filename for word in outside)]
    return f"{own[-1].filename}:{own[-1].lineno} {own[-1].name}" if own else ""


def _all_words(folder: Path) -> list[layout.Words]:
    found = []
    for path in sorted(folder.glob(f"*{layout.SUFFIX}"))[:4096]:
        with contextlib.suppress(OSError, ValueError):
            words = layout.newest(path.read_bytes()[: layout.SIZE])
            if words is not None:
                found.append(words)
    return found


def _add(error: BaseException, note: str) -> None:
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:  # Python 3.10 prints no notes
        sys.stderr.write(f"{note}\n")

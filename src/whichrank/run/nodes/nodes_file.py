"""What is kept of all nodes together: who was there, whose clock says what, and one manifest over all their bundles.

A bundle of many nodes is a folder with `nodes.json`, `nodes/NAME/` (the bundle of each) and a manifest over all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichrank import __version__
from whichrank.evidence.bundle import load, now
from whichrank.model.files import private_folder, replace_text
from whichrank.model.manifest import NAME, SCHEMA_VERSION
from whichrank.run.watch import run_record
from whichrank.run.watch.capture import told
from whichrank.run.watch.job_processes import Member

NODES = "nodes.json"
FOLDER = run_record.NODES


@dataclass(slots=True)
class Entry:
    """One node, as somebody else saw it."""

    name: str
    state: str
    """`here`, `silent`, `left`, `ended`, or `unknown` where only the leader knew."""
    ranks: list[int] = field(default_factory=list)
    heard_ns: int | None = None
    how: str = ""
    """How its silence showed: `no answer` on an open connection, or `not renewed` in a shared folder."""
    address: str = ""
    clock: tuple[float, float] | None = None
    code: int | None = None
    missing: str = ""
    """Why there is no evidence of it."""
    reason: str = ""
    """The same as a program said it: for the manifest, which no reader takes for evidence of the job."""
    results: str = ""

    def document(self) -> dict[str, Any]:
        ahead, error = self.clock or (None, None)
        silent = self.state == "silent" and self.heard_ns is not None
        return {
            "name": self.name,
            "state": self.state,
            "ranks": self.ranks,
            "heard_ns": self.heard_ns,
            "silent_s": round((time.time_ns() - (self.heard_ns or 0)) / 1e9, 1) if silent else None,
            "how": self.how or None,
            "address": self.address or None,
            "clock_ahead_s": ahead,
            "clock_error_s": error,
            "exit_code": self.code,
            "missing": self.missing or None,
            "results": self.results or None,
        }


def write(root: Path, by: str, entries: Iterable[Entry], job: dict[str, Any]) -> None:
    """`nodes.json` and the manifest over all."""
    entries = list(entries)
    document = {"whichrank_nodes": 1, "by": by, "time_ns": time.time_ns(), "nodes": [e.document() for e in entries]}
    _put(root / NODES, document)
    _put(root / NAME, _manifest(root, by, entries, job))


def keep_last_seen(root: Path, name: str, members: Iterable[Member]) -> None:
    """Of a node that is silent: its ranks as its watcher last told them; whether they live is not known."""
    rows = [{**told(member), "alive": None, "state": None} for member in members]
    if rows:
        home = private_folder(root / FOLDER / name)
        _put(home / "last_words.json", {"whichrank_last_words": 1, "host": name, "processes": rows})


def _manifest(root: Path, by: str, entries: list[Entry], job: dict[str, Any]) -> dict[str, Any]:
    parts = {path.parent.name: load(path.parent) for path in sorted((root / FOLDER).glob(f"*/{NAME}"))}
    clocks = {entry.name: entry.clock for entry in entries if entry.clock is not None}
    hosts, files, missing = [], [], []
    for name, part in parts.items():
        for host in _rows(part, "hosts"):
            ahead, error = clocks.get(name, (host.get("clock_offset_s"), host.get("offset_error_s")))
            hosts.append({**host, "name": name, "clock_offset_s": ahead, "offset_error_s": error})
        files += [{**row, "path": f"{FOLDER}/{name}/{row.get('path')}"} for row in _rows(part, "files")]
        missing += _rows(part, "missing")
    missing += [
        {"what": "evidence of the node", "host": e.name, "rank": None, "why": e.reason or e.missing}
        for e in entries
        if e.missing
    ]
    redaction = next((part["redaction"] for part in parts.values() if isinstance(part.get("redaction"), str)), "")
    return {
        "schema_version": SCHEMA_VERSION,
        "created": now(),
        "tool": {"name": "whichrank", "version": __version__},
        "job": {**job, "leader": by},
        "hosts": hosts,
        "files": files,
        "missing": missing,
        "redaction": redaction,
    }


def _rows(part: dict[str, Any], key: str) -> list[dict[str, Any]]:
    rows = part.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _put(path: Path, document: dict[str, Any]) -> None:
    private_folder(path.parent)
    replace_text(path, json.dumps(document, indent=1) + "\n", mode=0o600)

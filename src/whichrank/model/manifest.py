"""What a bundle says of itself: its files, and what could not be had."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from whichrank.model.quick_dataclass import dataclass

SCHEMA_VERSION = 1
NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file of a bundle; `path` is relative to it."""

    path: str
    kind: str
    sha256: str
    host: str | None = None
    rank: int | None = None
    pid: int | None = None
    taken_at: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that should have been there: absence is evidence."""

    what: str
    why: str
    host: str | None = None
    rank: int | None = None


@dataclass(slots=True)
class Manifest:
    """The contents of manifest.json."""

    created: str
    tool: dict[str, str]
    job: dict[str, Any] = field(default_factory=dict)
    hosts: list[dict[str, Any]] = field(default_factory=list)
    files: list[BundleFile] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    redaction: str = ""

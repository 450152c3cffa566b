"""The manifest of a bundle after scrubbing: its paths and checksums are those of the copy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from whichrank.evidence.scrubbing.voices import Voice
from whichrank.model.manifest import NAME

MOST = 256 << 20
REDACTION = "names of hosts, users and accounts, addresses and secrets replaced by whichrank scrub"


def parsed(name: str, path: Path) -> dict[str, Any] | None:
    """The content, where this is a manifest."""
    if PurePosixPath(name).name != NAME or path.stat().st_size > MOST:
        return None
    try:
        content = json.loads(path.read_bytes().decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and isinstance(content.get("files"), list) else None


def listen(content: dict[str, Any], voice: Voice) -> None:
    """Learn the names in it: those of hosts are called `name` there."""
    hosts = content.get("hosts")
    for host in hosts if isinstance(hosts, list) else []:
        if isinstance(host, dict) and isinstance(host.get("name"), str):
            voice.value(host["name"], "host")
    _walked(content, voice)


def rewritten(
    content: dict[str, Any], voice: Voice, copied: Mapping[str, tuple[str, str]], left_out: Mapping[str, str]
) -> bytes:
    """The document for the copy; `copied`: old path -> new path and checksum, `left_out`: old path -> why."""
    hosts = content.get("hosts")
    for host in hosts if isinstance(hosts, list) else []:
        if isinstance(host, dict) and isinstance(host.get("name"), str):
            host["name"] = voice.value(host["name"], "host")
    files, missing = [], content.get("missing")
    missing = list(missing) if isinstance(missing, list) else []
    fixed: list[tuple[str, str] | None] = []
    for file in content["files"]:
        old = file.get("path") if isinstance(file, dict) else None
        if not isinstance(old, str):
            continue
        if old in copied:
            files.append(file)
            fixed.append(copied[old])
        else:
            why = f"left out by scrub: {left_out.get(old, 'it is not in the bundle')}"
            missing.append({"what": file.get("kind"), "host": file.get("host"), "rank": file.get("rank"), "why": why})
    document = _walked({**content, "files": files, "missing": missing, "redaction": REDACTION}, voice)
    for file, there in zip(document["files"], fixed, strict=True):
        if there is not None:
            file["path"], file["sha256"] = there
    return json.dumps(document, indent=2).encode() + b"\n"


def _walked(value: Any, voice: Voice, key: str = "", depth: int = 0) -> Any:
    if depth > 60:
        return None
    if isinstance(value, str):
        return value if key in ("sha256", "redaction") else voice.value(value, key)
    if isinstance(value, dict):
        return {voice.value(str(name)): _walked(inner, voice, str(name), depth + 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [_walked(inner, voice, key, depth + 1) for inner in value]
    return value

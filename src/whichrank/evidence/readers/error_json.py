"""`error.json`: the exception that a worker of the elastic agent wrote before it ended."""

from __future__ import annotations

import json
from typing import Any

from whichrank.evidence.text import tracebacks
from whichrank.evidence.text.path_hint import hint_of_path
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Ref
from whichrank.records.events.processes import Traceback

NAME = "error_json"

_MOST = 16 << 20


def sniff(head: bytes, name: str) -> bool:
    """True for a JSON object that has a `message`, and is called so or has the call stack."""
    start = head.lstrip()[:1] == b"{" and b'"message"' in head
    return start and (name.endswith("error.json") or b'"py_callstack"' in head or b'"extraInfo"' in head)


def read(item: Item) -> Reading:
    """One `traceback` event; its time is in whole seconds, as written."""
    if item.size > _MOST:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB are no error.json")
    try:
        content = json.loads(item.read().decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{item.label}: no valid JSON ({error})") from error
    message = content.get("message") if isinstance(content, dict) else None
    if isinstance(message, str):
        message = {"message": message}
    if not isinstance(message, dict) or not isinstance(message.get("message"), str):
        raise UnreadableError(f"{item.label}: no message in it")
    extra = message.get("extraInfo")
    return _reading(item, message["message"], extra if isinstance(extra, dict) else {})


def _reading(item: Item, message: str, extra: dict[str, Any]) -> Reading:
    hint = hint_of_path(item.label)
    stack = extra.get("py_callstack")
    trace = tracebacks.parse(stack) if isinstance(stack, str) else None
    name, colon, words = message.partition(":")
    stated = name if colon and name.replace(".", "").isidentifier() else ""
    kind = trace.type if trace and trace.type else stated
    event = Traceback(
        ref=Ref(item.label, "key message.message", message[:400], hint.rank),
        line=1,
        time_ns=_stamp(extra.get("timestamp")),
        rank=hint.rank,
        local_rank=hint.local_rank,
        frames=tuple(trace.frames) if trace else (),
        type=kind,
        message=(words if colon and kind.endswith(name) else message).strip()[:4000],
        truncated=trace is None or trace.truncated,
        attempt=hint.attempt,
    )
    missing = [] if trace else ["no call stack"]
    missing += [] if event.time_ns is not None else ["no time"]
    return Reading([event], "partial" if missing else "complete", ", ".join(missing))


def _stamp(value: Any) -> int | None:
    """Seconds since 1970, written as a string."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return int(seconds * 10**9) if 0 < seconds < 1e11 else None

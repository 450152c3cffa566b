"""What `whichrank run` wrote of the job that it watched: `run.json`."""

from __future__ import annotations

import json
from typing import Any

from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.events.run_state import RunFinished

NAME = "run_record"

_LARGEST = 1 << 26
_IGNORED = Reading([], "ignored", "the record of the run")


def sniff(head: bytes, name: str) -> bool:
    """True for the file of that name that begins as it does."""
    return name.rpartition("/")[2] == "run.json" and b'"schema_version"' in head[:64] and b'"attempts"' in head


def read(item: Item) -> Reading:
    """That the job ended well, where it did in its first attempt and every alarm was withdrawn."""
    try:
        told = json.loads(item.read()) if item.size <= _LARGEST else {}
    except (ValueError, RecursionError):
        return _IGNORED
    if not isinstance(told, dict) or not _ended_well(told):
        return _IGNORED
    ref = Ref(item.label, "exit_code", "the job that was watched ended by exit code 0")
    return Reading([RunFinished(ref=ref, how="watched")])


def _ended_well(told: dict[str, Any]) -> bool:
    alarms = told.get("alarms")
    return (
        told.get("state") == "ended"
        and told.get("exit_code") == 0
        and told.get("attempts") == 1
        and not told.get("ended_on_request")
        and isinstance(alarms, list)
        and all(isinstance(alarm, dict) and alarm.get("withdrawn") for alarm in alarms)
    )

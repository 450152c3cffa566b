"""Live processes as settings: what they started with, what they have now, and what NCCL says it read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from whichrank.evidence.collectors.process_environment import ProcessEnvironment, collect
from whichrank.facts.variables.environment import catalogue
from whichrank.facts.variables.values import number
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Ref
from whichrank.records.settings import Assignment, Late, SettingsFile
from whichrank.source import launch, said


def of_process(pid: int, logs: list[Path]) -> SettingsFile:
    """The settings of one live process, with those that changed after its start."""
    return as_file(collect(pid), what_nccl_said(logs))


def what_nccl_said(logs: list[Path]) -> dict[str, tuple[str, Ref]]:
    """Name -> the value that NCCL read, from its logs; earlier logs win."""
    heard: dict[str, tuple[str, Ref]] = {}
    for path in logs:
        try:
            with path.open("rb") as stream:
                text = stream.read(launch.SIZE_LIMIT).decode("utf-8", "backslashreplace")
        except OSError as error:
            raise UnreadableError(f"can't read {path}: {error.strerror}") from error
        for name, value in said.read(text, str(path))[0].items():
            heard.setdefault(name, value)
    return heard


def as_file(process: ProcessEnvironment, heard: Mapping[str, tuple[str, Ref]]) -> SettingsFile:
    """The present environment where it could be had, else the one at the start; and what came too late."""
    label = f"process {process.pid}"
    out = SettingsFile.empty(label, "environment")
    out.note = process.note
    now = process.start if process.now is None else process.now
    rank = int(now["RANK"]) if now.get("RANK", "").isdigit() and len(now["RANK"]) < 8 else None
    for name, value in now.items():
        ref = Ref(label, f"variable {name}", f"{name}={value}"[:300], rank=rank)
        assignment = Assignment(name, value, ref, label, "process")
        out.assignments.append(assignment)
        if name not in catalogue():
            continue
        if name in heard and not _same(value, heard[name][0]):
            event = f"NCCL had read '{heard[name][0]}'" if heard[name][0] else "NCCL had refused its value"
            out.late.append(Late(assignment, event, heard[name][1]))
        elif process.now is not None and process.start.get(name) != value and name not in heard:
            was = process.start.get(name)
            quote = f"{name} was not set" if was is None else f"{name}={was}"
            before = Ref(label, "/proc/PID/environ", quote[:300], rank=rank)
            out.late.append(Late(assignment, "the process had started", before, sure=False))
    return out


def _same(set_value: str, read_value: str) -> bool:
    numbers = number(set_value), number(read_value)
    return set_value == read_value or (None not in numbers and numbers[0] == numbers[1])

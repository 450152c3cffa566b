"""NCCL_IB_HCA names more devices than it seems to.

What it finds: device names with a number and without "=", such as mlx5_1, which NCCL takes for a prefix: it
also means mlx5_10 to mlx5_19.

Why it happens: the list is one of prefixes; only a leading "=" makes it one of names.

How it decides: on a known host, by its devices: a name that matches more than itself. Elsewhere it is a warning if
a comment of the file names such a device, and so is a short list with such a name, because it was meant to pick
devices; a long one, which names all devices of a host, or one that counts from mlx5_0 on, is only mentioned, and so
are names such as mlx5_4, whose longer siblings few hosts have.

Example: `NCCL_IB_HCA=mlx5_1` → `NCCL_IB_HCA==mlx5_1` (one "=" of the shell, one of NCCL).

Fix: put "=" in front of the list.

Limits: without the host's devices it is a possibility, not a fact.
"""

from __future__ import annotations

import re

from whichrank.model.findings import Finding, Severity
from whichrank.records.settings import Assignment, Settings, flagged

CODE = "ENV107"
CAUSE = "wrong-environment"

_FEW = 3


def judge(settings: Settings) -> list[Finding]:
    told = {file.label: file.told_devices for file in settings.files}
    found = [
        _judge(a, settings.hcas, told.get(a.ref.source, frozenset()))
        for a in settings.assignments()
        if a.name == "NCCL_IB_HCA" and a.value is not None
    ]
    return [finding for finding in found if finding is not None]


def _judge(assignment: Assignment, devices: frozenset[str] | None, told: frozenset[str]) -> Finding | None:
    text = (assignment.value or "").strip()
    if text.startswith(("=", "^=")):
        return None
    names = [token.partition(":")[0].strip() for token in text.removeprefix("^").split(",")]
    # mlx5_0 has no longer sibling: devices are not numbered 00 or 01.
    open_ended = [name for name in names if re.fullmatch(r"\w+_[1-9]", name)]
    more = sorted(
        device
        for device in (told if devices is None else devices)
        for name in open_ended
        if device.startswith(name) and device not in names
    )
    if not open_ended or (devices is not None and not more):
        return None
    name = open_ended[0]
    also = ", ".join(more) if more else f"{name}0 to {name}9"
    message = f"NCCL_IB_HCA={text} is a list of prefixes: {name} also means {also}."
    # Hosts with 20 devices and more are rare; those with 10 to 19 (ports, virtual functions) are not.
    # A list that counts from 0 names the devices of a host with few; one that begins at 1 picks among more.
    likely = len(names) <= _FEW and any(name.endswith("_1") and f"{name[:-1]}0" not in names for name in open_ended)
    severity: Severity = "warning" if more or likely else "info"
    return flagged(CODE, assignment, severity, message, f"Name devices exactly: NCCL_IB_HCA=={text.removeprefix('^')}")

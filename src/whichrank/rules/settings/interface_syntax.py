"""The name of an interface or device in a form that its reader does not know.

What it finds: "^" and "=" given to Gloo or TensorPipe, which take plain names only; "^" in the middle of
NCCL's list; spaces; patterns such as eth*; addresses; a name of one character; RDMA devices given as interfaces and the other way
round.

Why it happens: NCCL's list has a syntax of its own, and it is copied to variables that look alike.

How it decides: by the syntax of each variable. Gloo was tried on 2.13.0: "Unable to find address for: ^lo".

Example: `GLOO_SOCKET_IFNAME=^docker0` → `GLOO_SOCKET_IFNAME=eth0`.

Fix: the plain name of one interface for Gloo.

Limits: whether the interface exists and reaches the other hosts is not looked at here.
"""

from __future__ import annotations

import re

from whichrank.model.findings import Finding
from whichrank.records.settings import Assignment, Settings, flagged

CODE = "ENV108"
CAUSE = "wrong-environment"

_PLAIN = {"GLOO_SOCKET_IFNAME": "Gloo", "TP_SOCKET_IFNAME": "TensorPipe"}
_NCCL_LISTS = frozenset({"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_OOB_NET_IFNAME"})


def judge(settings: Settings) -> list[Finding]:
    found = []
    for assignment in settings.assignments():
        value = assignment.value
        if not value:
            continue
        if assignment.name in _PLAIN and re.search(r"[\^=*?\s]", value):
            reader = _PLAIN[assignment.name]
            message = f"{assignment.name}={value}: {reader} takes plain interface names; ^ and = are NCCL's syntax."
            fix = f"Name one interface that reaches the other hosts: {assignment.name}=eth0."
            found.append(flagged(CODE, assignment, "error", message, fix))
        elif assignment.name in _NCCL_LISTS:
            found += _nccl(assignment, value)
    return found


def _nccl(assignment: Assignment, value: str) -> list[Finding]:
    name = assignment.name
    tokens = value.removeprefix("^").removeprefix("=").split(",")
    if any(token.startswith("^") for token in tokens[1:]):
        message = f"{name}={value}: ^ counts only in front of the whole list."
        return [flagged(CODE, assignment, "warning", message, "Put ^ first, and only names to exclude after it.")]
    if value.startswith("=") and any(token.startswith("=") for token in tokens[1:]):
        message = f"{name}={value}: = counts only in front of the whole list, where it holds for every name."
        return [flagged(CODE, assignment, "warning", message, f"Write {name}=={value.replace('=', '')}.")]
    if name == "NCCL_IB_HCA" and value.startswith("^") and any(re.fullmatch(r"mlx\d?_?", token) for token in tokens):
        message = f"{name}={value}: names are prefixes, so this excludes every RDMA device that is called mlx5_…"
        return [flagged(CODE, assignment, "warning", message, "Name the devices to exclude in full: ^mlx5_0.")]
    if any(re.search(r"\s", token) for token in tokens):
        message = f"{name}='{value}': the space becomes part of the name, which then matches nothing."
        return [flagged(CODE, assignment, "warning", message, f"Write {name}={re.sub(r'[, ]+', ',', value.strip())}.")]
    if any(re.search(r"[*?!\[\"']", token) for token in tokens):
        message = f"{name}={value}: patterns and quotes are not expanded; a name is a prefix already."
        fix = f"Write {name}={re.sub(chr(91) + '*?!' + chr(92) + chr(34) + chr(39) + chr(93), '', value)}."
        return [flagged(CODE, assignment, "warning", message, fix)]
    if any(re.match(r"\d{1,3}(?:\.\d{1,3}){3}(?:/\d+)?$", token) for token in tokens):
        message = f"{name}={value}: this is an address; the variable takes names of interfaces or devices."
        return [flagged(CODE, assignment, "warning", message, "Name the interface that has this address: ip -br addr.")]
    if name == "NCCL_SOCKET_IFNAME" and len(value) == 1:
        return [flagged(CODE, assignment, "warning", f"{name}={value}: a text of one character is ignored.")]
    if name == "NCCL_SOCKET_IFNAME" and any(re.match(r"mlx\d_\d", token) for token in tokens):
        message = f"{name}={value}: these are RDMA devices; the variable takes IP interfaces."
        return [flagged(CODE, assignment, "warning", message, "Name RDMA devices in NCCL_IB_HCA.")]
    if name == "NCCL_IB_HCA" and any(re.fullmatch(r"(?:ib|eth|en\w*|bond)\d+", token) for token in tokens):
        message = f"{name}={value}: this is an IP interface; the variable takes RDMA devices such as mlx5_0."
        return [flagged(CODE, assignment, "warning", message, "Look the devices up in /sys/class/infiniband.")]
    return []

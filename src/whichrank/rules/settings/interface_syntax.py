"""The name of an interface or device in a form that its reader does not know.

What it finds: "^" and "=" given to Gloo or TensorPipe, which take plain names only; "^" and "=" in the middle of
NCCL's list; the beginning of a name where a whole name is needed (`=eth`, or `eth` for Gloo); an exclusion that leaves
no device; spaces; patterns such as eth*; addresses; a name of one character; RDMA devices given as interfaces and the
other way round.

Why it happens: NCCL's list has a syntax of its own, and it is copied to variables that look alike.

How it decides: by the syntax of each variable. Gloo was tried on 2.13.0: "Unable to find address for: ^lo".

Example: `GLOO_SOCKET_IFNAME=^docker0` → `GLOO_SOCKET_IFNAME=eth0`.

Fix: the plain name of one interface for Gloo.

Limits: whether the interface exists and reaches the other hosts is not looked at here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
        elif assignment.name in _PLAIN and (stem := _stem(value.split(","))):
            reader = _PLAIN[assignment.name]
            message = f"{assignment.name}={value}: {reader} takes whole names, and no interface is called {stem}."
            fix = f"Write the whole name, with its number: {assignment.name}={stem}0."
            found.append(flagged(CODE, assignment, "warning", message, fix))
        elif assignment.name in _NCCL_LISTS:
            found += _nccl(assignment, value)
    return found


# How names of interfaces and RDMA devices begin that the kernel, udev and drivers number.
_STEM = re.compile(r"eth|ib|hsn|en|en[ops]|enp\d+s|bond|mlx\d?_?|mlx5_ib|bnxt_re_?|irdma_?|efa_?|rdmap")


def _stem(names: list[str]) -> str:
    """The beginning of a name, where a whole name is needed."""
    return next((name for name in names if _STEM.fullmatch(name)), "")


def _nccl(assignment: Assignment, value: str) -> list[Finding]:
    """The first thing that is wrong with a list of NCCL's."""
    name = assignment.name
    tokens = value.removeprefix("^").removeprefix("=").split(",")
    for message, fix in [*_signs(name, value, tokens), *_words(name, value, tokens)]:
        return [flagged(CODE, assignment, "warning", f"{name}={value}: {message}.", fix)]
    return []


def _signs(name: str, value: str, tokens: list[str]) -> Iterator[tuple[str, str]]:
    """ "^" and "=" in a place where they do not mean what they seem to."""
    if any(token.startswith("^") for token in tokens[1:]):
        yield "^ counts only in front of the whole list", "Put ^ first, and only names to exclude after it."
    if value.startswith("=") and any(token.startswith("=") for token in tokens[1:]):
        plain = value.replace("=", "")
        yield "= counts only in front of the whole list, where it holds for every name", f"Write {name}=={plain}."
    exact = value.removeprefix("^").startswith("=")
    if exact and (stem := _stem([token.removeprefix("=") for token in tokens])):
        whole = f"{stem.rstrip('_')}{'_0' if 'mlx' in stem else '0'}"
        fix = f"Leave = out, so that {stem} is a prefix, or write whole names: {name}=={whole}."
        yield f"= asks for the exact name, and none is called {stem}", fix
    if name == "NCCL_IB_HCA" and value.startswith("^") and any(re.fullmatch(r"mlx\d?_?", token) for token in tokens):
        message = "names are prefixes, so this excludes every RDMA device that is called mlx5_…"
        yield message, "Name the devices to exclude in full: ^mlx5_0."


def _words(name: str, value: str, tokens: list[str]) -> Iterator[tuple[str, str]]:
    """Texts that are not names of interfaces or devices."""
    if any(re.search(r"\s", token) for token in tokens):
        fix = f"Write {name}={re.sub(r'[, ]+', ',', value.strip())}."
        yield "the space becomes part of the name, which then matches nothing", fix
    if any(re.search(r"[;|+]", token) for token in tokens):
        yield "names are separated by commas only", f"Write {name}={re.sub(r'[;|+]+', ',', value)}."
    if any(re.search(r"[*?!\[\"']", token) for token in tokens):
        yield "patterns and quotes are not expanded", "Write the beginning of the name alone: it is a prefix already."
    if any(re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}(?:/\d+)?", token) for token in tokens):
        message = "this is an address; the variable takes names of interfaces or devices"
        yield message, "Name the interface that has this address: ip -br addr."
    if name == "NCCL_SOCKET_IFNAME" and len(value) == 1:
        yield "a text of one character is ignored", "Write the whole name."
    if name == "NCCL_SOCKET_IFNAME" and any(re.match(r"mlx\d_\d", token) for token in tokens):
        yield "these are RDMA devices; the variable takes IP interfaces", "Name RDMA devices in NCCL_IB_HCA."
    if name == "NCCL_IB_HCA" and any(re.fullmatch(r"(?:ib|eth|en\w*|bond)\d+", token) for token in tokens):
        message = "this is an IP interface; the variable takes RDMA devices such as mlx5_0"
        yield message, "Look the devices up in /sys/class/infiniband."

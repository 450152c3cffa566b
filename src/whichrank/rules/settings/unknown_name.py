"""A name that nobody reads: misspelt, in the wrong case, or made up.

What it finds: variables whose name starts as NCCL's, PyTorch's or Gloo's do and that no known version reads,
and exported names that are nearly a known one, of these or of CUDA, OpenMP, libfabric and UCX (NCLL_DEBUG, nccl_debug,
P2P_LEVEL, FI_PROVIDERS, CUDA_VISIBLE_DEVICE). Also MASTER_ADDRESS and the like, in a file that sets the other
variables of the rendezvous and not that one. The nearest real name is given.

Why it happens: the environment takes any name, and a variable that is not read is not complained about.

How it decides: by the catalogue of all variables over all releases, and a table of those of other libraries. Other
names of these and of builds (CUDA_, UCX_, FI_, SLURM_, NCCL_HOME, network plugins…) are left alone unless they are a
slip away from one of the table, or have the beginning of another library's names (RCCL_DEBUG, NCCL_OFI_PROTOCOL). So
are helper variables of a script that it refers to itself, names of a container beside the one with the GPUs, and names
that a program keeps in a table to warn of them or to take them out.

Example: `export NCCL_SOCKET_IFNAMES=eth0` → NCCL_SOCKET_IFNAME.

Fix: use the real name, or remove the line.

Limits: a plugin or a private build may read names that no catalogue has.
"""

from __future__ import annotations

import re
from functools import cache

from whichrank.facts.variables.environment import catalogue, in_family, neighbour, others, turned, unread
from whichrank.facts.variables.near_names import nearest
from whichrank.model.findings import Finding
from whichrank.records.settings import Assignment, Settings, flagged

CODE = "ENV101"
CAUSE = "wrong-environment"

_ROOTS = ("NCCL", "TORCH", "GLOO")
_HELPER = (
    r"_(?:VERSION|VER|HOME|ROOT|DIR|PATH|LIB|URL|REPO|TAG|BRANCH|COMMIT|SRC|BUILD|INSTALL|PKG|ARGS?|OPTS?|FLAGS?|ENV"
    r"|CONFIG|PARAMS?|VARS?|CMD|OPTIONS|SETTINGS|IMAGE|LOGS?|OUT|OUTPUT)$"
)
_RENDEZVOUS = frozenset({"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
_BEGINNINGS = ("MASTER", "WORLD", "LOCAL")
_UNPREFIXED = ("IB_", "P2P_", "SOCKET_", "SHM_", "NVLS_", "NET_GDR_", "NSOCKS_")


def judge(settings: Settings) -> list[Finding]:
    known = catalogue()
    given: dict[str, list[Assignment]] = {}
    for assignment in settings.assignments():
        given.setdefault(assignment.ref.source, []).append(assignment)
    return [
        finding
        for assignment in settings.assignments()
        if assignment.name not in known and assignment.name not in unread()
        for finding in _of_the_rendezvous(assignment, given[assignment.ref.source]) or _judge(assignment)
    ]


_NEAR = 2
"""Lines between settings that belong together."""


def _together(assignment: Assignment, others: list[Assignment]) -> set[str]:
    """Names of a file that are set with this one: those of the same block of a program, else of the whole file."""
    if assignment.how != "python":
        return {each.name for each in others}
    first = last = assignment.ref.line
    lines = sorted({each.ref.line for each in others})
    for line in (line for line in lines if line > last):
        last = line if line - last <= _NEAR else last
    for line in reversed([line for line in lines if line < first]):
        first = line if first - line <= _NEAR else first
    return {each.name for each in others if first <= each.ref.line <= last}


def _of_the_rendezvous(assignment: Assignment, others: list[Assignment]) -> list[Finding]:
    """A name next to one of those by which ranks find each other, where the others are given and not that one."""
    given = _together(assignment, others) if assignment.name.startswith(_BEGINNINGS) else set()
    name = assignment.name
    if assignment.used or assignment.how == "local" or name in _RENDEZVOUS:
        return []
    real = next((r for r in _RENDEZVOUS if name.startswith(r) or name.replace("_", "") == r.replace("_", "")), "")
    if not real or real in given or not given & _RENDEZVOUS:
        return []
    message = f"{name} is not a variable that PyTorch reads; the name is {real}."
    return [flagged(CODE, assignment, "warning", message, f"Write {real} instead of {name}.")]


def _judge(assignment: Assignment) -> list[Finding]:
    name = assignment.name
    if name in others() or (assignment.how == "local" and assignment.used):
        return []
    if real := _of_another_library(assignment):
        message = f"{name} is not a variable that {others()[real].library} reads; the nearest real name is {real}."
        return [flagged(CODE, assignment, "warning", message, f"Write {real} instead of {name}.")]
    if (real := turned(name)) and not assignment.used:
        reader = "RCCL" if name.startswith("RCCL_") else others()[real].library
        message = f"{name} is not a variable that {reader} reads; the name is {real}."
        return [flagged(CODE, assignment, "warning", message, f"Write {real} instead of {name}.")]
    if neighbour(name):
        return []
    if in_family(name):
        helper = assignment.used or bool(re.search(_HELPER, name))
        real = nearest(name, 1 if helper else 3)
        if helper and not real:
            return []
    else:
        real = "" if assignment.how == "local" else _meant(assignment)
        if not real:
            return []
    return [_finding(assignment, real)]


def _of_another_library(assignment: Assignment) -> str:
    """The name of CUDA, OpenMP, libfabric or UCX that is one slip away; two in a long name."""
    name = assignment.name
    if assignment.used or assignment.how == "local" or in_family(name) or "_" not in name or len(name) < 8:
        return ""
    upper = name.upper()
    if name != upper:
        return upper if upper in others() and upper.count("_") > 1 else ""
    real = nearest(name, 2 if len(name) >= 20 else 1, others)
    more = real.count("_") > name.count("_") and name.count("_") < 2
    return "" if not real or more or others()[real].library == "the launcher" else real


def _finding(assignment: Assignment, real: str) -> Finding:
    name = assignment.name
    if real:
        message = f"{name} is read by no version of NCCL or PyTorch; the nearest real name is {real}."
        return flagged(CODE, assignment, "warning", message, f"Write {real} instead of {name}.")
    message = f"{name} is read by no known version of NCCL or PyTorch, so it has no effect."
    return flagged(CODE, assignment, "warning", message, f"Remove {name}, or look up the name that was meant.")


def _meant(assignment: Assignment) -> str:
    """The known name that a foreign-looking one stands for."""
    name = assignment.name
    if name != name.upper() and name.upper() in catalogue():
        return name.upper()
    if _near_a_root(name.partition("_")[0]):
        return nearest(name, 2)
    if name.startswith(_UNPREFIXED) and not assignment.used and f"NCCL_{name}" in catalogue():
        return f"NCCL_{name}"
    return ""


@cache
def _near_a_root(word: str) -> bool:
    """NCLL, NCC, TROCH: the same letters, or one letter too few or too many."""
    return any(
        word != root and len(word) >= 3 and (sorted(word) == sorted(root) or _one_off(word, root)) for root in _ROOTS
    )


def _one_off(word: str, root: str) -> bool:
    longer, shorter = (word, root) if len(word) > len(root) else (root, word)
    if len(longer) == len(shorter):
        return sum(a != b for a, b in zip(longer, shorter, strict=True)) == 1
    return len(longer) - len(shorter) == 1 and any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))

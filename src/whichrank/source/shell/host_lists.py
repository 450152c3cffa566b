"""Lists of a job's hosts that a scheduler leaves to its script: how many lines they have, and which is the first."""

from __future__ import annotations

import re

from whichrank.source.shell.allocation import Allocation, Count

LINES_OF = "lines of "
"""In front of a file's variable: the name (no variable is called so) under which its number of lines is known."""
_FILE = r"\"?\$\{?(PBS_NODEFILE|LSB_DJOB_HOSTFILE)\}?\"?"
_COUNTED = re.compile(
    rf" ?(?:cat +{_FILE} ?\| ?wc +-l|wc +-l ?<? ?{_FILE})(?: ?\| ?(?:awk|cut|tr|sed|xargs)\b[^|]{{0,200}})? ?"
)
_WHOLE = re.compile(rf"\"?\$\(\s*(?:cat\s+|<\s*){_FILE}\s*\)\"?|`\s*cat\s+{_FILE}\s*`")
_LISTS = (
    r"SKYPILOT_NODE_IPS|SLURM_(?:JOB_|STEP_)?NODELIST|PBS_NODEFILE|LSB_DJOB_HOSTFILE|LSB_HOSTS|COBALT_NODEFILE"
    r"|PE_HOSTFILE|scontrol show hostnames?"
)
_LAST = re.compile(
    rf"[^|]{{0,200}}\b(?:{_LISTS})\b[^|]{{0,200}}\|(?:[^|]{{1,200}}\|)?\s*tail\s+(?:-n\s*1|-1|--lines[= ]1)\s*"
    rf"|\s*tail\s+(?:-n\s*1|-1)\s+\"?\$\{{?(?:{_LISTS})\}}?\"?\s*"
)
IN_ORDER = re.compile(r"\$\{?(?:SKYPILOT_NODE_RANK|SLURM_NODEID|SLURM_PROCID|OMPI_COMM_WORLD_RANK|PMI(?:X)?_RANK)\b")
"""Numbers of hosts and ranks that follow the order of these lists: the first host has rank 0."""


def rows(size: Allocation) -> dict[str, Count]:
    """For each file its lines: PBS writes one for each MPI process of a chunk (by default one), Torque one for each
    `ppn`, LSF one for each slot."""
    found = {}
    if size.rows is not None:
        found["PBS_NODEFILE"] = size.rows
    if size.slots is not None and size.slots.said.startswith("-n"):
        found["LSB_DJOB_HOSTFILE"] = size.slots
    return found


def counted(command: str) -> str:
    """The file whose lines a command counts; empty where it counts each host once, or does something else."""
    match = _COUNTED.fullmatch(" ".join(command.split()))
    return next(filter(None, match.groups()), "") if match else ""


def whole(raw: str) -> str:
    """The file that a word puts in line by line: `$(cat $PBS_NODEFILE)`."""
    match = _WHOLE.fullmatch(raw)
    return next(filter(None, match.groups()), "") if match else ""


def is_list(raw: str) -> bool:
    """A word that becomes the hosts of the job, one after the other."""
    return bool(re.search(rf"(?:\$\(|`)[^|]{{0,200}}\b(?:{_LISTS})\b", raw))


def is_last(command: str) -> bool:
    """It prints the last host of a list: `echo "$SKYPILOT_NODE_IPS" | tail -n 1`."""
    return bool(_LAST.fullmatch(command))

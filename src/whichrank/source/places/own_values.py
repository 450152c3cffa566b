"""Words of a shell that become another text on each host: its own name or address, and what is drawn at random."""

from __future__ import annotations

import re

_DRAWN = re.compile(
    r"\$\{?RANDOM\b|\bRANDOM\s*[%+*/)]|\$\$(?!\w)|\$\{\$\}"
    r"|(?:\$\(|`)\s*(?:shuf|uuidgen|mktemp|openssl rand|od\s[^)`|]{0,40}/dev/u?random)\b"
    r"|/proc/sys/kernel/random/\w|(?:\$\(|`)\s*date\s+(?:-\w+\s+)?[\"']?\+[^)`]{0,40}%[sNST]|\$\{?EPOCHREALTIME\b"
)
_OWN_NAME = re.compile(
    r"(?:\$\(|`)\s*(?:/bin/)?(?:hostname\b|uname -n|ip\s(?:-\w+\s+){0,4}(?:a|addr|address|route)\b|ifconfig\b"
    r"|getent\s+\w{1,12}\s+[\"']?\$[{(]?(?i:hostname)\b|cat\s+/etc/hostname\b)"
    r"|\$(?:HOSTNAME\b|\{HOSTNAME\}|\{?SLURMD_NODENAME\b)"
)
_OTHER_NAME = re.compile(r"\|\s*(?:sed|tr|perl)\b|\|\s*cut\s[^|]{0,40}-d\s*['\"]?-|\|\s*awk\s+-F\s*['\"]?-")

OF_A_TASK = re.compile(
    r"SLURM_(?:PROCID|NODEID|LOCALID)|(?:OMPI|MV2)_COMM_WORLD_(?:LOCAL_|NODE_)?RANK|PMIX?_(?:LOCAL_)?RANK|MPI_LOCALRANKID"
    r"|PALS_(?:LOCAL_)?RANKID|JSM_NAMESPACE_(?:LOCAL_)?RANK|FLUX_TASK_(?:LOCAL_ID|RANK)"
)
"""Variables that a launcher sets in each task that it starts, and that are empty or 0 before."""
NAMES_ITSELF = "every host runs this, so each of them names itself as the meeting point"
SAME_HOST = "every host gets this text, and NCCL takes ranks with the same one for ranks of one host"
OWN_HOST = "Leave it out, or take something that differs from host to host, such as the name of the host."


def is_random(raw: str) -> bool:
    """Another text whenever it is read."""
    return bool(_DRAWN.search(raw))


def is_own_name(raw: str) -> bool:
    """The name or the address of the host that runs this; not a name that is made of it (`${HOSTNAME%-*}-0`)."""
    return bool(_OWN_NAME.search(raw)) and not _OTHER_NAME.search(raw)


def differs(raw: str) -> bool:
    """It becomes another text on each host that reads it."""
    return is_random(raw) or is_own_name(raw)

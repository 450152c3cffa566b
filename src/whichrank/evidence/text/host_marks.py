"""Whose answer follows, where people ask several hosts and keep it in one file: headings and shell prompts."""

from __future__ import annotations

import re

_HEADING = re.compile(
    r"\s{0,4}[=#*>-]{2,40} {0,4}(?=\S{0,40}[\d-])([A-Za-z][\w.-]{1,62})(?:: |:?\s{0,4}[=#*<-]{0,40}\s{0,4}$)"
)
"""`==== node7: nvidia-smi …`, `--- node7`, `### node7 ###`."""
PROMPT = (
    r"(?:\[(?:[\w.-]{1,32}@)?([\w.-]{1,64})(?: [^\]\n]{0,60})?\]|[\w.-]{1,32}@([\w.-]{1,64})(?::[^$#\n]{0,60})?)[$#] "
    r"|([A-Za-z][\w.-]{1,63}) ?[$#>] (?=ibv_devinfo|ibstat|perfquery|ethtool|rdma |cat /sys|nvidia-smi)"
)
"""`[node1]$ `, `[root@node1 ~]# `, `user@node1:~$ `, `node1 # ibstat`."""
_PROMPT = re.compile(PROMPT)


def host_above(line: str) -> str | None:
    """The host that a heading or a prompt names."""
    if heading := _HEADING.match(line):
        return heading[1]
    prompt = _PROMPT.match(line)
    return prompt[1] or prompt[2] or prompt[3] if prompt else None

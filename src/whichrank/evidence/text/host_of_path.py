"""Which host a file is about, by its path."""

from __future__ import annotations

import re

# What hosts are commonly called, with a number somewhere; `gpu0` alone is a GPU.
_NAME = (
    r"(?:node|host|worker|compute|hgx|dgx|nid|cn|ip|slave|master|trn|gpu-?(?:node|host|srv)|gpu(?=\d\d|-\d))"
    r"[a-z0-9-]{0,60}\d[a-z0-9-]{0,40}"
)
_FOLDER = re.compile(rf"{_NAME}(?:\.[a-z0-9.-]{{1,200}})?$", re.IGNORECASE)
_IN_NAME = re.compile(rf"(?:^|[._@-]|_)({_NAME})(?=$|[._@])", re.IGNORECASE)
_ADDRESS = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]*\d)")
_TOOLS = re.compile(
    r"(?:nvidia-smi|dmesg|journalctl|journal|kern|syslog|messages|ibstat(?:us)?|perfquery|ethtool|ibv_devinfo"
    r"|limits|ulimit|before|after|counters)(?=[._-]|$)",
    re.IGNORECASE,
)


_PLAIN = re.compile(
    r"(?!(?:gpus?|ranks?|runs?|jobs?|attempts?|tr(?:y|ies)|parts?|v|steps?|days?|logs?|copy|boot|eth|ens|ib|mlx|pid|no)"
    r"[-_]?\d)[a-z]{1,16}(?:-?[a-z]{1,8})?-?\d{1,4}[a-z]?",
    re.IGNORECASE,
)
"""What is left of the name of a tool's output and can only be a host: `dmesg_c43.txt`."""


def host_of_path(label: str) -> str | None:
    """`node7/dmesg.txt`, `nodes/a/dmesg.txt`, `dmesg-node7.txt`, `dmesg_10.0.0.7.txt`: the innermost name counts."""
    *folders, name = label[-1024:].replace("\\", "/").split("/")
    stem = _TOOLS.sub("", name).strip("._-")
    match = _IN_NAME.search(stem)
    if match:
        return match[1].rstrip("-")
    if match := _ADDRESS.search(stem):
        return match[0]
    rest = stem.rpartition(".")[0] or stem
    if _TOOLS.match(name) and _PLAIN.fullmatch(rest):
        return rest
    for at, folder in reversed(list(enumerate(folders))):
        # A bundle of many nodes has a folder for each of them, whatever they are called.
        of_a_node = at > 0 and folders[at - 1] == "nodes" and not folder.isdigit()
        if of_a_node or _FOLDER.match(folder):
            return folder
        if match := re.search(rf"(?:^|[=_-])({_NAME})$", folder, re.IGNORECASE):
            return match[1]
    return None

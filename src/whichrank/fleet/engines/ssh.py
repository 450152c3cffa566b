"""Hosts by ssh: given by name, in a list or a hostfile."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from whichrank.fleet.engines import Engine
from whichrank.model.errors import UsageError

DEFAULT = "ssh"
CONNECT_S = 10
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-T")
_NAME = re.compile(r"(?:\w[\w.-]{0,63}@)?\w[\w.:-]{0,252}", re.ASCII)
_MOST_HOSTS = 100_000
_RANGE = re.compile(r"\[([\d,-]+)\]")


def engine(
    hosts: Sequence[str], slots: dict[str, int] | None = None, ssh: str = DEFAULT, connect_s: int = CONNECT_S
) -> Engine:
    """`ssh` may carry options of its own: "ssh -F cluster.conf -p 2222"."""
    for host in hosts:
        if not _NAME.fullmatch(host):
            raise UsageError(f"'{host}' is not a host name", "Give --hosts node1,node2 or --hostfile FILE.")
    words = shlex.split(ssh)

    def wrap(host: str, command: Sequence[str], *more: str) -> list[str]:
        return [*words, *_OPTIONS, "-o", f"ConnectTimeout={connect_s}", *more, "--", host, shlex.join(command)]

    def again(host: str, command: Sequence[str]) -> list[str]:
        relay = shlex.join([sys.executable, "-m", "whichrank.fleet.small_packets"])
        return wrap(host, command, "-o", f"ProxyCommand={relay} %h %p")

    return Engine("ssh", tuple(dict.fromkeys(hosts)), wrap, slots=slots or {}, again=again)


def expand(words: str) -> list[str]:
    """`a,b`, and Slurm's `node[01-03,7]`."""
    found: list[str] = []
    for word in re.split(r",(?![^\[]*\])", words):
        match = _RANGE.search(word)
        if match is None:
            found += [word.strip()] if word.strip() else []
            continue
        for part in match[1].split(","):
            first, _, last = part.partition("-")
            if not first.isdigit() or not (last or first).isdigit() or int(last or first) - int(first) > _MOST_HOSTS:
                raise UsageError(f"'{word[:80]}' is not a list of hosts", "Write node[01-16] or node1,node2.")
            for number in range(int(first), int(last or first) + 1):
                rest = word[: match.start()] + str(number).zfill(len(first)) + word[match.end() :]
                found += expand(rest)
    return found


def read_hostfile(path: Path) -> tuple[list[str], dict[str, int]]:
    """Lines `host`, `host slots=8` (Open MPI, DeepSpeed), `host:8` (MPICH); `#` begins a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read the hostfile {path}: {error}") from error
    hosts: list[str] = []
    slots: dict[str, int] = {}
    for line in lines:
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, _, count = words[0].partition(":")
        said = next((w.partition("=")[2] for w in words[1:] if w.startswith(("slots=", "max_slots="))), count)
        for host in expand(name):
            hosts.append(host)
            if said.isdigit():
                slots[host] = slots.get(host, 0) + int(said)
    if not hosts:
        raise UsageError(f"the hostfile {path} names no host", "Write one host per line, e.g. node1 slots=8.")
    return list(dict.fromkeys(hosts)), slots

"""Interfaces of hosts, asked for in a container that has a network of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from whichrank.records.settings import UNKNOWN, Clash

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.state import Environment
    from whichrank.source.shell.words import Field, Value

OF_HOSTS = re.compile(r"=?(?:ib|bond|en[ospx])\w{0,14}$")
"""Interfaces that hosts have; a container that is attached to a network calls it eth0, net1 or by a name of its own."""
VARIABLES = frozenset({"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME"})


def of_docker_run(
    shell: Interpreter, options: Sequence[Field], given: Mapping[str, Value], inner: Environment
) -> Iterator[Clash]:
    """`docker run -e NCCL_SOCKET_IFNAME=ens3 …` without --network=host; given: what its own options set."""
    verbs = [word.text for word in options[:3]]
    if "run" not in verbs or any(UNKNOWN in word.text and not word.text.startswith("-") for word in options):
        return
    if any(re.match(r"--(?:net|network|pod)(?:=|$)", word.text) for word in options):
        return
    passed = {
        name: v.value._replace(line=v.made[0].line) for name, v in inner.variables.items() if v.exported and v.made
    }
    for name, value in {**passed, **given}.items():
        if name in VARIABLES and OF_HOSTS.match(value.text):
            why = f"the container has eth0, as it is not on the host's network, and no {value.text}"
            fix = "Add --network=host to docker run, or name eth0."
            yield Clash(name, shell.ref(value.line), why, fix, (shell.ref(options[0].line),))

"""What a program says of the size of its job: `Trainer(devices=8, num_nodes=2)`, `mp.spawn(…, nprocs=8)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from whichrank.model.evidence import Ref
from whichrank.records.launches import Count, Launch, Told
from whichrank.source._constants import Constants
from whichrank.source._environ import sets

_PER_HOST = {
    "spawn": "nprocs", "start_processes": "nprocs", "Trainer": "devices", "Fabric": "devices",
    "notebook_launcher": "num_processes",
}  # fmt: skip


def launches(
    tree: ast.AST, constants: Constants, names: frozenset[str], ref: Callable[[ast.AST], Ref]
) -> Iterator[Launch]:
    own = {}
    for node in ast.walk(tree):
        own.update({name: (constants.text(value), ref(place)) for name, value, place in sets(node, names, constants)})
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called not in _PER_HOST:
            continue
        launch = Launch(called, ref(node), per_host=_count(node, _PER_HOST[called], constants, ref))
        launch.nodes = _count(node, "num_nodes", constants, ref)
        visible, address = own.get("CUDA_VISIBLE_DEVICES"), own.get("MASTER_ADDR")
        if visible is not None and re.fullmatch(r"\d+(?:,\d+)*", visible[0]):
            launch.visible = Count(len(visible[0].split(",")), visible[1], "CUDA_VISIBLE_DEVICES")
        if address is not None:
            launch.address = Told("MASTER_ADDR", *address)
        launch.interfaces = tuple(Told(n, *own[n]) for n in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if n in own)
        yield launch


def _count(node: ast.Call, name: str, constants: Constants, ref: Callable[[ast.AST], Ref]) -> Count | None:
    given = next((k.value for k in node.keywords if k.arg == name), None)
    known = constants.resolve(given) if given is not None else None
    if not isinstance(known, ast.Constant) or isinstance(known.value, bool) or not isinstance(known.value, int):
        return None
    return Count(known.value, ref(given or node), name) if known.value > 0 else None

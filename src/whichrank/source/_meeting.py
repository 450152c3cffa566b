"""Meeting points that every rank of a program makes up for itself: its own host's name, a port drawn at random."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from whichrank.model.evidence import Ref
from whichrank.records.settings import MEETING, Clash
from whichrank.source._constants import Constants
from whichrank.source._environ import sets
from whichrank.source.nodes import asks_for_main, last_name

_OWN_NAME = re.compile(r"\b(?:gethostname|getfqdn|platform\.node|gethostbyname\((?:socket\.)?gethostname)\b")
_DRAWN = re.compile(
    r"\brandom\.\w+\(|\b(?:randint|randrange|getsockname)\(|\b\w{0,20}free_\w{0,20}port\w{0,20}\(|uuid4"
)
_STARTERS = frozenset({
    "spawn", "start_processes", "Process", "Popen", "run", "call", "check_call", "elastic_launch", "notebook_launcher",
})  # fmt: skip
_SEVERAL_HOSTS = re.compile(r"\b(?:NNODES|NODE_RANK|nnodes|num_nodes|node_rank|SLURM_N(?:ODEID|NODES))\b")


def own(
    tree: ast.Module, constants: Constants, environ: frozenset[str], ref: Callable[[ast.AST], Ref]
) -> Iterator[Clash]:
    """MASTER_ADDR and MASTER_PORT where a rank joins; a program that starts its ranks may draw them once before."""
    for body in _ranks(tree):
        joins = [n for n in body if isinstance(n, ast.Call) and last_name(n.func) == "init_process_group"]
        sizes = [constants.text(k.value) for call in joins for k in call.keywords if k.arg == "world_size"]
        if not joins or "1" in sizes:
            continue
        several = any(_SEVERAL_HOSTS.search(ast.unparse(n)) for n in body if isinstance(n, ast.Assign | ast.Call))
        for node in body:
            for name, value, place in sets(node, environ, constants):
                text = ast.unparse(constants.resolve(value))
                if isinstance(node, ast.Call) and last_name(node.func) == "setdefault":
                    continue  # a launcher's own value wins
                if name == "MASTER_PORT" and _DRAWN.search(text):
                    why = "every rank draws its own, so that they look for each other at different ports"
                    fix = "Draw it once, before the ranks are started."
                    yield Clash(name, ref(place), why, fix, cause=MEETING)
                elif name in {"MASTER_ADDR", "NCCL_COMM_ID"} and several and _OWN_NAME.search(text):
                    why = "every host runs this, so each of them names itself as the meeting point"
                    fix = "Give the address of the first host to all of them."
                    yield Clash(name, ref(place), why, fix, cause=MEETING)


def _ranks(tree: ast.Module) -> Iterator[list[ast.AST]]:
    """The parts that every rank runs: a function that is spawned, or the whole program where it starts nobody."""
    nodes = list(ast.walk(tree))
    starts = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) in _STARTERS]
    branches = {
        inner for node in nodes if isinstance(node, ast.If) and not asks_for_main(node.test) for inner in ast.walk(node)
    }
    if not starts:
        yield [node for node in nodes if node not in branches]
        return
    targets = {last_name(node.args[0]) for node in starts if node.args}
    targets |= {last_name(k.value) for node in starts for k in node.keywords if k.arg in {"target", "fn"}}
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name in targets:
            yield [inner for inner in ast.walk(node) if inner not in branches]

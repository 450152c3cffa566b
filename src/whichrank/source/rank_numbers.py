"""Ranks and their number, as a program or a script computes them: RANK = node * per_node + local needs
WORLD_SIZE = nodes * per_node."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

from whichrank.model.evidence import Ref
from whichrank.records.settings import Clash
from whichrank.source._constants import Constants

_WHY = "it is the number of one host's processes, while RANK counts over all hosts: most ranks are out of range"
_FIX = "Write the number of hosts times the processes of each."
_PRODUCT = re.compile(r"\$\(\(\s*(?:\(\s*)?\$?\{?(\w+)\}?\s*\*\s*\$?\{?(\w+)\}?\s*(?:\)\s*)?\+")


def in_program(
    given: Mapping[str, tuple[ast.expr, ast.AST]], constants: Constants, ref: Callable[[ast.AST], Ref]
) -> Clash | None:
    """By the expressions of an environment that a program makes."""
    if not {"RANK", "WORLD_SIZE"} <= given.keys():
        return None
    rank, size = (_bare(given[name][0], constants) for name in ("RANK", "WORLD_SIZE"))
    if not isinstance(rank, ast.BinOp) or not isinstance(rank.op, ast.Add):
        return None
    for term in (rank.left, rank.right):
        if not isinstance(term, ast.BinOp) or not isinstance(term.op, ast.Mult):
            continue
        if _same(size, (term.left, term.right), constants):
            return Clash("WORLD_SIZE", ref(given["WORLD_SIZE"][1]), _WHY, _FIX, (ref(given["RANK"][1]),))
    return None


def _same(size: ast.expr, factors: tuple[ast.expr, ast.expr], constants: Constants) -> bool:
    """The size is one factor of the ranks' product alone, and no product itself."""
    if isinstance(size, ast.Constant):
        return any(constants.text(factor) == str(size.value) for factor in factors)
    return any(ast.dump(factor) == ast.dump(size) for factor in factors)


def _bare(node: ast.expr, constants: Constants) -> ast.expr:
    """Without str(…), f"{…}" and a name in between that stands for a sum or a product."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
            node = node.args[0]
        elif isinstance(node, ast.JoinedStr) and len(node.values) == 1:
            only = node.values[0]
            return _bare(only.value, constants) if isinstance(only, ast.FormattedValue) else node
        else:
            known = constants.resolve(node) if isinstance(node, ast.Name) else node
            return known if isinstance(known, ast.BinOp) else node


def in_script(rank: str, size: str) -> bool:
    """By the texts that a script assigns to RANK and WORLD_SIZE."""
    factors = _PRODUCT.search(rank)
    alone = re.fullmatch(r"[\"']?\$?\{?(\w+)\}?[\"']?", size)
    return bool(factors and alone and alone[1] in factors.groups())


def clash(ref: Ref, also: Ref) -> Clash:
    return Clash("WORLD_SIZE", ref, _WHY, _FIX, (also,))


_MANY_HOSTS = re.compile(
    r"[\"']?\$\{?(SLURM_(?:JOB_)?NODELIST|SLURM_STEP_NODELIST|PBS_NODEFILE|LSB_HOSTS|LSB_MCPU_HOSTS|LSB_DJOB_HOSTFILE"
    r"|COBALT_NODEFILE|PE_HOSTFILE|SKYPILOT_NODE_IPS)\}?[\"']?(?::.*)?"
)


def names_many_hosts(raw: str) -> str:
    """The variable in a text that is nothing but the list (or the file) of all hosts of a job."""
    match = _MANY_HOSTS.fullmatch(raw)
    return match[1] if match else ""


def not_one_host(name: str, many: str, ref: Ref) -> Clash:
    what = "the path of a file" if many.endswith("FILE") else "the list of all hosts"
    first = "scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1" if many.startswith("SLURM") else "head -n 1"
    why = f"${many} is {what}, and one host is needed here: no such name can be resolved"
    return Clash(name, ref, why, f"Take the first host: {first}.")


_PER_JOB = {
    "SLURM_NNODES": "hosts", "SLURM_JOB_NUM_NODES": "hosts", "SLURM_NTASKS_PER_NODE": "tasks",
    "SLURM_GPUS_ON_NODE": "tasks", "SLURM_GPUS_PER_NODE": "tasks",
}  # fmt: skip


def too_few(size: str, hosts: int, tasks: int, ref: Ref) -> Clash | None:
    """WORLD_SIZE as the number of hosts or of one host's tasks, where the scheduler starts each rank."""
    alone = re.fullmatch(r"[\"']?\$\{?(\w+?)(?::-\d+)?\}?[\"']?", size)
    counted = _PER_JOB.get(alone[1], "") if alone else ""
    if not alone or not counted or hosts * tasks <= (hosts if counted == "hosts" else tasks):
        return None
    why = f"${alone[1]} is {hosts if counted == 'hosts' else tasks}, and {hosts * tasks} tasks are started as ranks"
    return Clash("WORLD_SIZE", ref, why, "Write $SLURM_NTASKS.")

"""Ranks and their number, as a program or a script computes them: RANK = node * per_node + local needs
WORLD_SIZE = nodes * per_node."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

from whichrank.model.evidence import Ref
from whichrank.records.settings import SIZE, Clash
from whichrank.source._constants import Constants
from whichrank.source.nodes import last_name

_WHY = "it is the number of one host's processes, while RANK counts over all hosts: most ranks are out of range"
_FIX = "Write the number of hosts times the processes of each."
_HOSTS_WHY = "it is the number of hosts, while RANK counts the processes of all of them: most ranks are out of range"
_HOST_COUNT = re.compile(
    r"(?:slurm_(?:job_)?|skypilot_|pet_|num_?|n_?|total_?|args_)?(?:num_?|n)?_?(?:nodes|hosts|machines|node_count|host_count)(?:_?count)?",
    re.IGNORECASE,
)
_HOST_LIST = re.compile(r"(?:\w{0,40}_)?(?:hosts?|nodes?|machines|node_?list|host_?list|host_?names)", re.IGNORECASE)
ALONE = re.compile(r"(?:^|[\W_])(?:dev|local|laptop|login|workstation|desktop|test)", re.IGNORECASE)
"""In the name of a host that is no part of a job with others."""
_ALONE = re.compile(r"[\"']?\$?\{?(\w+)\}?[\"']?")
_TIMES = re.compile(r"\$\(\(\s*\$?\{?(?!1\b)\w+\}?\s*\*\s*\$?\{?(?!1\b)\w+\}?\s*\)\)")
_LOCAL = frozenset({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"})
_PRODUCT = re.compile(r"\$\(\(\s*(?:\(\s*)?\$?\{?(\w+)\}?\s*\*\s*\$?\{?(\w+)\}?\s*(?:\)\s*)?\+")


def in_program(
    given: Mapping[str, tuple[ast.expr, ast.AST]], constants: Constants, ref: Callable[[ast.AST], Ref]
) -> Clash | None:
    """By the expressions of an environment that a program makes."""
    if not {"RANK", "WORLD_SIZE"} <= given.keys():
        return None
    rank, size = (_bare(given[name][0], constants) for name in ("RANK", "WORLD_SIZE"))
    local = _bare(given["LOCAL_RANK"][0], constants) if "LOCAL_RANK" in given else None
    if local is not None and ast.dump(local) == ast.dump(rank) and _several(size, constants):
        return repeated(ref(given["RANK"][1]), ref(given["WORLD_SIZE"][1]))
    over_all, told = _OVER_ALL_IN_PROGRAM.fullmatch(ast.unparse(rank)), _FROM_ENVIRONMENT.fullmatch(ast.unparse(size))
    if over_all and told and _LOCAL_SIZE.fullmatch(told[1]):
        return Clash("WORLD_SIZE", ref(given["WORLD_SIZE"][1]), _WHY, _FIX, (ref(given["RANK"][1]),), cause=SIZE)
    numbered = local is not None and over_all
    if numbered and _counts_hosts(given["WORLD_SIZE"][0], constants):
        return Clash("WORLD_SIZE", ref(given["WORLD_SIZE"][1]), _HOSTS_WHY, _FIX, (ref(given["RANK"][1]),), cause=SIZE)
    if not isinstance(rank, ast.BinOp) or not isinstance(rank.op, ast.Add):
        return None
    for term in (rank.left, rank.right):
        if not isinstance(term, ast.BinOp) or not isinstance(term.op, ast.Mult):
            continue
        why = _WHY if _same(size, (term.left, term.right), constants) else ""
        if _counts_hosts(given["WORLD_SIZE"][0], constants) and not _one(term, constants):
            why = _HOSTS_WHY
        if why:
            return Clash("WORLD_SIZE", ref(given["WORLD_SIZE"][1]), why, _FIX, (ref(given["RANK"][1]),), cause=SIZE)
    return None


def _same(size: ast.expr, factors: tuple[ast.expr, ast.expr], constants: Constants) -> bool:
    """The size is one factor of the ranks' product alone, and no product itself."""
    if isinstance(size, ast.Constant):
        return any(constants.text(factor) == str(size.value) for factor in factors)
    return any(ast.dump(factor) == ast.dump(size) for factor in factors)


def _one(product: ast.BinOp, constants: Constants) -> bool:
    """One of the factors is known to be 1."""
    return any(_length(constants.resolve(factor), constants) == 1 for factor in (product.left, product.right))


def _counts_hosts(node: ast.expr, constants: Constants) -> bool:
    """A name, an argument or a variable that is called a number of hosts, or the length of a list of them."""
    for _ in range(4):
        bare = _bare(node, constants)
        if isinstance(bare, ast.Call) and isinstance(bare.func, ast.Name) and bare.func.id == "int" and bare.args:
            bare = bare.args[0]
        if isinstance(bare, ast.Call) and isinstance(bare.func, ast.Name) and bare.func.id == "len" and bare.args:
            return bool(_HOST_LIST.fullmatch(last_name(bare.args[0])))
        if isinstance(bare, ast.Name | ast.Attribute) and _HOST_COUNT.fullmatch(last_name(bare)):
            return True
        key = bare.slice if isinstance(bare, ast.Subscript) else None
        if isinstance(bare, ast.Call) and last_name(bare.func) in {"get", "getenv"} and bare.args:
            key = bare.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return bool(_HOST_COUNT.fullmatch(key.value))
        following = constants.resolve(bare)
        if following is bare:
            return False
        node = following
    return False


def _several(size: ast.expr, constants: Constants) -> bool:
    """A product, of which no factor is known to be 1."""
    if not isinstance(size, ast.BinOp) or not isinstance(size.op, ast.Mult):
        return False
    return all(_length(constants.resolve(factor), constants) != 1 for factor in (size.left, size.right))


def _length(node: ast.expr, constants: Constants) -> int | None:
    """A number, or the length of a list that the file spells out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    counted = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
    items = constants.resolve(node.args[0]) if counted and isinstance(node, ast.Call) and node.args else None
    return len(items.elts) if isinstance(items, ast.List | ast.Tuple) else None


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


def in_script(numbers: Mapping[str, tuple[str, int]], ref: Callable[[int], Ref]) -> Clash | None:
    """By the texts that a script assigns to RANK, LOCAL_RANK and WORLD_SIZE, each with its line."""
    if not {"RANK", "WORLD_SIZE"} <= numbers.keys():
        return None
    (rank, rank_line), (size, size_line) = numbers["RANK"], numbers["WORLD_SIZE"]
    factors = _PRODUCT.search(rank)
    alone = _ALONE.fullmatch(size)
    if factors and alone and alone[1] in factors.groups():
        return Clash("WORLD_SIZE", ref(size_line), _WHY, _FIX, (ref(rank_line),), cause=SIZE)
    counted = re.fullmatch(r"[\"']?\$\{#(\w+)\[[@*]\]\}[\"']?", size)
    hosts = bool(alone and _HOST_COUNT.fullmatch(alone[1])) or bool(counted and _HOST_LIST.fullmatch(counted[1]))
    several = "1" not in factors.groups() if factors else "LOCAL_RANK" in numbers and bool(_OVER_ALL.fullmatch(rank))
    if several and hosts:
        return Clash("WORLD_SIZE", ref(size_line), _HOSTS_WHY, _FIX, (ref(rank_line),), cause=SIZE)
    if alone and _LOCAL_SIZE.fullmatch(alone[1]) and _OVER_ALL.fullmatch(rank):
        return Clash("WORLD_SIZE", ref(size_line), _WHY, "Take the number of all ranks.", (ref(rank_line),), cause=SIZE)
    local, taken = _ALONE.fullmatch(numbers.get("LOCAL_RANK", ("", 0))[0]), _ALONE.fullmatch(rank)
    if (
        taken
        and taken[1] in _LOCAL | ({local[1]} if local else set())
        and (_TIMES.search(size) or (alone and _WORLD.fullmatch(alone[1])))
    ):
        return repeated(ref(rank_line), ref(size_line))
    return None


_LOCAL_SIZE = re.compile(
    r"(?:OMPI|MV2)_COMM_WORLD_LOCAL_SIZE|MPI_LOCALNRANKS|PMI_LOCAL_SIZE|PALS_LOCAL_SIZE|JSM_NAMESPACE_LOCAL_SIZE"
    r"|LOCAL_WORLD_SIZE"
)
_WORLD = re.compile(r"(?:OMPI|MV2)_COMM_WORLD_SIZE|PMI_SIZE|JSM_NAMESPACE_SIZE|SLURM_NTASKS")
_GLOBAL = r"SLURM_PROCID|(?:OMPI|MV2)_COMM_WORLD_RANK|PMIX?_RANK|PALS_RANKID|JSM_NAMESPACE_RANK|FLUX_TASK_RANK"
_OVER_ALL = re.compile(rf"[\"']?\$\{{?({_GLOBAL})(?::?-\w{{0,12}})?\}}?[\"']?")
_OVER_ALL_IN_PROGRAM = re.compile(
    rf"(?:str\(|int\(){{0,2}}(?:os\.)?(?:environ\[|environ\.get\(|getenv\()'({_GLOBAL})'[^%/]{{0,80}}"
)
_FROM_ENVIRONMENT = re.compile(
    r"(?:str\(|int\(){0,2}(?:os\.)?(?:environ\[|environ\.get\(|getenv\()'(\w{1,60})'[^%/*]{0,80}"
)
_LOCAL_NAMES = {"SLURM_PROCID": "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_LOCAL_RANK"}


def not_local(name: str, raw: str, ref: Ref) -> Clash | None:
    """LOCAL_RANK that is taken from the number over all hosts."""
    match = _OVER_ALL.fullmatch(raw) or _OVER_ALL_IN_PROGRAM.fullmatch(raw)
    if match is None:
        return None
    why = f"${match[1]} counts over all hosts: from the second host on no GPU has that number"
    local = _LOCAL_NAMES.get(match[1], "")
    return Clash(name, ref, why, f"Write ${local}." if local else "Take the number on the own host.")


def repeated(ref: Ref, also: Ref) -> Clash:
    """RANK that is only the number on its own host, in a world of several hosts."""
    why = "it is the number on its own host, while WORLD_SIZE counts over all hosts: each host starts the same ranks"
    return Clash(
        "RANK",
        ref,
        why,
        "Write the host's number times the processes of each, plus the local one.",
        (also,),
        cause=SIZE,
    )


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
    return Clash("WORLD_SIZE", ref, why, "Write $SLURM_NTASKS.", cause=SIZE)

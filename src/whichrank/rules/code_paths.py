"""Operations that not every rank reaches: which rule speaks of a parting of ranks, and in which words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from whichrank.model.evidence import Ref
from whichrank.records.code import Operation, Parting, Reason

BY_RANK = frozenset({"rank", "part", "host"})
_WRAPPED = frozenset({
    "ddp", "fsdp", "deepspeed", "wrapped_output", "accelerator", "metric", "lightning_module", "trainer", "fabric",
    "hf_trainer",
})  # fmt: skip
"""Where a call hides its collective: what the operation's receiver is."""
_FIRST = re.compile(
    r"(?:rank|proc|local|node|id)\w{0,60}\W.{0,160}\b0\b|main|master|zero|first|leader(?!s)", re.IGNORECASE
)
"""A condition that asks for the first rank."""
_NODE = re.compile(r"node|GROUP_RANK", re.IGNORECASE)
"""A number that all ranks of a host share."""
_LEAVES = {"return": "return", "continue": "skip the rest of the loop body", "exit": "exit"}
_LATE = frozenset({"break", "loop", "while", "swallowed", "except", "finally", "thread"})
"""Shapes that other rules speak of, whatever the operation is."""


def main_kind(parting: Parting) -> str:
    return parting.reasons[0].kind if parting.reasons else ""


def _hidden(parting: Parting) -> bool:
    """Whether the operation is inside a call that does not look like one."""
    return parting.concerned.detail in _WRAPPED


def _on_one_rank(parting: Parting) -> bool:
    """Whether one rank, or one on every host, is alone in it: `rank == 0`, `args.local_rank in (-1, 0)`."""
    if main_kind(parting) != "rank" or (parting.here and parting.there):
        return False
    if parting.doers is None and _NODE.search(parting.reasons[0].what):
        return False
    return parting.doers == 1 or (parting.doers is None and _FIRST.search(parting.test) is not None)


def _makes_group(parting: Parting) -> bool:
    return parting.concerned.kind in {"group", "init"}


def _same_in_other_order(parting: Parting) -> bool:
    """Whether both sides do the same operations, in another order."""
    here, there = _names(parting.here), _names(parting.there)
    return here != there and len(here) > 1 and sorted(here) == sorted(there)


def _names(operations: tuple[Operation, ...]) -> list[tuple[str, str]]:
    return [(op.name, op.group) for op in operations]


def _shown(operation: Operation) -> str:
    """The operation as people call it."""
    words = {
        "ddp": "DistributedDataParallel", "fsdp": "a sharded model", "deepspeed": "a DeepSpeed engine",
        "wrapped_output": "a wrapped model", "accelerator": "Accelerate", "metric": "a metric", "fabric": "Fabric",
    }  # fmt: skip
    on = words.get(operation.detail)
    return f"{operation.name} of {on}" if on else operation.name


def _because(reasons: tuple[Reason, ...]) -> str:
    """Why ranks differ, in words."""
    if not reasons:
        return "a value that differs between ranks"
    first = reasons[0]
    return f"{first.what} ({_at(first.ref)})"


def _at(ref: Ref) -> str:
    return f"{ref.source.rpartition('/')[2]} {ref.locator}"


def words(parting: Parting) -> dict[str, str]:
    """What the sentences of the rules are filled with."""
    return {
        "op": _shown(parting.concerned),
        "name": parting.concerned.name,
        "test": parting.test,
        "under": f" under `{parting.test}`" if parting.test else "",
        "because": _because(parting.reasons),
        "who": "one rank" if parting.doers == 1 else "some ranks",
        "leave": _LEAVES.get(parting.shape, ""),
        "shape": parting.shape,
        "groups": ", ".join(sorted(group or "default" for group in _groups(parting))),
    }


class Way(NamedTuple):
    """How ranks part, and the cause where it is not always the rule's own."""

    concerns: Callable[[Parting], bool]
    cause: Callable[[Parting], str] = lambda _parting: ""


def _by_rank(parting: Parting) -> bool:
    return parting.shape in {"branch", "first", "decorated"} and main_kind(parting) in BY_RANK


def _local_decision(parting: Parting) -> bool:
    """A branch that every rank decides for itself, on something other than its rank."""
    by_itself = parting.shape == "branch" and main_kind(parting) not in BY_RANK
    return by_itself and not _makes_group(parting) and not _same_in_other_order(parting)


def _skips_step(parting: Parting) -> bool:
    skips = parting.shape in {*_LEAVES, "skipped step"}
    return skips and main_kind(parting) not in BY_RANK and _hidden(parting)


def _leaves(parting: Parting) -> bool:
    return parting.shape in _LEAVES and not _makes_group(parting) and not _skips_step(parting)


def _groups(parting: Parting) -> set[str]:
    return {operation.group for operation in (*parting.here, *parting.there)}


def _crossed(parting: Parting) -> bool:
    return parting.shape == "branch" and _same_in_other_order(parting)


def _by_doers(parting: Parting) -> str:
    return "rank0-only-collective" if _on_one_rank(parting) else "conditional-collective"


def _left_while(parting: Parting) -> str:
    waits = main_kind(parting) == "time" or (main_kind(parting) == "rank" and parting.test != "True")
    return "conditional-collective" if waits else ""


WAYS = {
    "LINT101": Way(
        lambda p: _by_rank(p) and not _hidden(p) and not _makes_group(p) and not _same_in_other_order(p), _by_doers
    ),
    "LINT102": Way(lambda p: _local_decision(p) and "%" not in p.test and ".item()" not in p.test),
    "LINT103": Way(_leaves, _by_doers),
    "LINT104": Way(lambda p: p.shape == "break"),
    "LINT105": Way(lambda p: p.shape == "loop" and main_kind(p) != "order"),
    "LINT106": Way(lambda p: p.shape == "while", _left_while),
    "LINT107": Way(lambda p: p.shape == "swallowed"),
    "LINT108": Way(lambda p: p.shape in {"except", "finally"}),
    "LINT109": Way(
        lambda p: p.shape in {"thread", "destructor", "callback"},
        lambda p: "conditional-collective" if p.shape == "callback" else "",
    ),
    "LINT110": Way(lambda p: _by_rank(p) and _hidden(p), _by_doers),
    "LINT111": Way(lambda p: _makes_group(p) and p.shape not in _LATE, _by_doers),
    "LINT112": Way(lambda p: (p.shape == "loop" and main_kind(p) == "order") or (_crossed(p) and len(_groups(p)) == 1)),
    "LINT113": Way(lambda p: _crossed(p) and len(_groups(p)) > 1),
    "LINT120": Way(_skips_step),
    "LINT121": Way(lambda p: _local_decision(p) and "%" in p.test),
    "LINT122": Way(lambda p: _local_decision(p) and ".item()" in p.test and "%" not in p.test),
}
"""By the code of the rule."""

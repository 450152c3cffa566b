"""What this rank brings to every collective: operation, size, type, reduction and root, by group and number.

The functions of torch.distributed are wrapped; a call costs a few microseconds more. What C++ issues by itself, as the
reductions of DistributedDataParallel, is not seen here.
"""

from __future__ import annotations

import binascii
import functools
import os
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

_MOST_SIGNATURES = 4096
_QUEUE = 65_536
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is not imported into a job


class Call(NamedTuple):
    """Where in the arguments of a function to look: position and name; -1 for what it has not."""

    tensor: tuple[int, str]
    group: tuple[int, str]
    op: tuple[int, str] = (-1, "")
    root: tuple[int, str] = (-1, "")
    group_root: str = ""
    sized: bool = True
    """Whether every rank must bring as much as the others."""


CALLS: dict[str, Call] = {
    "all_reduce": Call((0, "tensor"), (2, "group"), op=(1, "op")),
    "broadcast": Call((0, "tensor"), (2, "group"), root=(1, "src"), group_root="group_src"),
    "reduce": Call((0, "tensor"), (3, "group"), op=(2, "op"), root=(1, "dst"), group_root="group_dst"),
    "all_gather": Call((1, "tensor"), (2, "group"), sized=False),
    "all_gather_into_tensor": Call((1, "input_tensor"), (2, "group")),
    "reduce_scatter": Call((0, "output"), (3, "group"), op=(2, "op"), sized=False),
    "reduce_scatter_tensor": Call((1, "input"), (3, "group"), op=(2, "op")),
    "gather": Call((0, "tensor"), (3, "group"), root=(2, "dst"), group_root="group_dst", sized=False),
    "scatter": Call((0, "tensor"), (3, "group"), root=(2, "src"), group_root="group_src", sized=False),
    "all_to_all": Call((-1, ""), (2, "group"), sized=False),
    "all_to_all_single": Call((1, "input"), (4, "group"), sized=False),
    "barrier": Call((-1, ""), (0, "group"), sized=False),
}

RENAMED = {"all_gather_into_tensor": "all_gather_single", "reduce_scatter_tensor": "reduce_scatter_single"}
"""What torch calls them since 2.13: the old names call the new ones, and both count as one."""


class Collectives:
    """Counts the calls of every group, and keeps what was brought until it is written."""

    def __init__(self) -> None:
        self.queue: deque[tuple[str, int, str, int]] = deque(maxlen=_QUEUE)
        """Group, number of the call within it, signature, step."""
        self.step = 0
        self.new: deque[dict[str, Any]] = deque()
        """Signatures and groups that have not been written yet."""
        self.counts: dict[str, int] = {}
        self.before: Callable[[str, Any], None] | None = None
        """Told of every call and its tensor before it is issued."""
        self.strict: Callable[[str, int, str, list[int]], None] | None = None
        self.muted = self.refused = False
        self._known: dict[Any, str] = {}
        self._texts: dict[str, str] = {}
        self._ranks: dict[str, list[int]] = {}

    def note(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = CALLS[name]
        group = _given(call.group, args, kwargs)
        if group is None:
            group = c10d._world.default_pg  # noqa: SLF001 - what torch itself takes for None
        if group is None or not isinstance(group, dist.ProcessGroup):
            return  # not made yet, or this rank is not in it
        tensor = _given(call.tensor, args, kwargs)
        if self.before is not None:
            self.before(name, tensor)
        group_name = group.group_name
        number = self.counts.get(group_name)
        if number is None:
            number = 0
            self.new.append({"t": "group", "g": group_name, "d": getattr(group, "group_desc", ""),
                             "r": list(dist.get_process_group_ranks(group))})  # fmt: skip
        self.counts[group_name] = number + 1
        signature = self._signature(name, call, tensor, group, args, kwargs)
        self.queue.append((group_name, number, signature, self.step))
        if self.strict is not None:
            self.strict(group_name, number, signature, self._members(group_name, group))

    def _members(self, name: str, group: Any) -> list[int]:
        found = self._ranks.get(name)
        if found is None:
            found = self._ranks[name] = list(dist.get_process_group_ranks(group))
        return found

    def text(self, signature: str) -> str:
        """What a signature stands for: operation, reduction, elements, type and root."""
        return self._texts.get(signature, "a call that was not kept")

    def _signature(
        self, name: str, call: Call, tensor: Any, group: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        op = _reduction(_given(call.op, args, kwargs)) if call.op[1] else ""
        root = _root(call, group, args, kwargs) if call.root[1] else -1
        plain = isinstance(tensor, torch.Tensor)
        size = tensor.numel() if plain and call.sized else -1
        dtype = tensor.dtype if plain else None
        frame = _caller()
        key = (name, op, size, dtype, root, frame.f_code, frame.f_lineno)
        found = self._known.get(key)
        if found is None:
            text = f"{name}|{op}|{size}|{dtype}|{root}"
            found = f"{binascii.crc32(text.encode()):08x}"
            if len(self._known) < _MOST_SIGNATURES:
                self._known[key] = found
                self._texts[found] = text
                place = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
                self.new.append({"t": "sig", "id": found, "op": name, "red": op, "n": size,
                                 "d": str(dtype)[6:] if dtype else "", "root": root, "at": place})  # fmt: skip
        return found

    def drain(self) -> list[dict[str, Any]]:
        """What was noted since: new signatures first, then runs of calls by group."""
        found: list[dict[str, Any]] = []
        runs: dict[str, dict[str, Any]] = {}
        for _ in range(len(self.queue)):
            group, number, signature, step = self.queue.popleft()
            run = runs.get(group)
            if run is None or run["n"] + len(run["x"]) != number:
                run = runs[group] = {"t": "calls", "g": group, "n": number, "s": [step, step], "x": []}
                found.append(run)
            run["x"].append(signature)
            run["s"][1] = step
        told = [self.new.popleft() for _ in range(len(self.new))]
        for run in found:
            run["x"] = _packed(run["x"])
        return told + found


def _packed(signatures: list[str]) -> list[Any]:
    """Repeats are written once: `[["a", "b"], 12]` stands for a, b twelve times."""
    count = len(signatures)
    for length in range(1, min(64, count // 2) + 1):
        if count % length == 0 and signatures[:length] * (count // length) == signatures:
            return [signatures[:length], count // length]
    return [signatures, 1]


def _given(place: tuple[int, str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    index, name = place
    if 0 <= index < len(args):
        return args[index]
    return kwargs.get(name) if name else None


def _reduction(op: Any) -> str:
    if op is None:
        return "SUM"
    text = str(getattr(op, "op", op))
    return text.rpartition(".")[2]


def _root(call: Call, group: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    within = kwargs.get(call.group_root)
    if within is not None:
        return int(dist.get_global_rank(group, within))
    root = _given(call.root, args, kwargs)
    return int(root) if root is not None else 0


def _caller() -> Any:
    """The innermost frame that is neither ours nor torch.distributed's."""
    frame = sys._getframe(2)  # noqa: SLF001
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_HERE) and not file.endswith(("distributed_c10d.py", "c10d_logger.py")):
            break
        frame = frame.f_back
    return frame


def wrap(collectives: Collectives, problem: Callable[[BaseException], None]) -> None:
    """Put our functions in the place of torch's, in both modules that have them."""
    is_compiling = torch.compiler.is_compiling
    for name in CALLS:
        here = RENAMED.get(name, name)
        here = here if hasattr(c10d, here) else name
        original = getattr(c10d, here, None)
        if original is None:
            continue
        ours = _wrapped(name, original, collectives, problem, is_compiling)
        for module in (c10d, dist):
            if getattr(module, here, None) is original:
                setattr(module, here, ours)


def _wrapped(name: str, original: Any, collectives: Collectives, problem: Any, is_compiling: Any) -> Any:
    @functools.wraps(original)
    def ours(*args: Any, **kwargs: Any) -> Any:
        if collectives.refused:
            raise RefusedError("a collective inside of a replay")
        if not is_compiling() and not collectives.muted:
            try:
                collectives.note(name, args, kwargs)
            except RefusedError:
                raise
            except Exception as error:  # noqa: BLE001 - the call is the job's, and goes on
                problem(error)
        return original(*args, **kwargs)

    return ours


class RefusedError(RuntimeError):
    """A collective was not issued, because ranks do not agree on it (strict), or because it is not the time."""

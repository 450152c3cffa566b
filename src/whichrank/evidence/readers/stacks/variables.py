"""Variables that `py-spy dump --locals` shows beside the frames: who this rank is, and whom its call names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from whichrank.records.dump import Frame
from whichrank.records.stack import Call

INDENT = " " * 8
"""What the variables of a frame begin with."""
_VARIABLE = re.compile(r" {12}(\w{1,80}): (.{1,300})")
_HEADINGS = ("Arguments:", "Locals:")
_C10D = "distributed_c10d.py"
# The argument that names a peer or a root, by its global rank.
_WHOM = {
    **dict.fromkeys(("send", "isend", "reduce", "gather", "gather_object", "send_object_list"), ("dst", "to")),
    **dict.fromkeys(("recv", "irecv", "broadcast", "scatter", "recv_object_list"), ("src", "from")),
    **dict.fromkeys(("broadcast_object_list", "scatter_object_list"), ("src", "from")),
}
_MAKES_GROUP = ("new_group", "_new_group_with_tag", "_new_process_group_helper")
_RANKS = ("global_rank", "world_rank", "rank", "dist_rank", "my_rank")
KEPT = frozenset((*_RANKS, "src", "dst", "group_name", "ranks", "global_ranks_in_group"))
_LARGEST = 1 << 20

Values = Mapping[str, str]


def variable(line: str) -> tuple[str, str] | None:
    """Name and value where the line is one that is kept."""
    match = _VARIABLE.match(line)
    return (match[1], match[2]) if match and match[1] in KEPT else None


def is_shown(line: str) -> bool:
    """Whether it is a line that py-spy prints below a frame."""
    return line.startswith(INDENT) and (line.strip() in _HEADINGS or _VARIABLE.match(line) is not None)


def rank_of(frames: Sequence[tuple[Frame, Values]]) -> int | None:
    """The rank that torch's own frames name, else the one on which all frames of the program agree."""
    own = {rank for frame, values in frames if _is_torch(frame) for rank in _numbers(values, ("global_rank",))}
    said = own or {rank for frame, values in frames if not _is_torch(frame) for rank in _numbers(values, _RANKS)}
    return said.pop() if len(said) == 1 else None


def call_of(frames: Sequence[tuple[Frame, Values]]) -> Call | None:
    """The call of torch.distributed that the thread is in, with the rank or the group that it names: the outermost of
    those frames that stand one below the other, innermost first."""
    found = None
    for frame, values in frames:
        if not _is_torch(frame):
            break
        outer = _call(frame, values)
        found = found if outer is None or (found is not None and found.name) else outer
    return found


def _call(frame: Frame, values: Values) -> Call | None:
    if not frame.file.endswith(_C10D):
        return None
    argument, word = _WHOM.get(frame.function, ("", ""))
    if argument and (told := _numbers(values, (argument,))):
        return Call(frame.function, word, told.pop())
    if frame.function in _MAKES_GROUP and (listed := values.get("global_ranks_in_group") or values.get("ranks")):
        members = tuple(int(number) for number in re.findall(r"\d{1,7}", listed))
        name = values.get("group_name", "").strip("\"'")
        return Call("new_group", ranks=members, name=name) if members and "..." not in listed else None
    return None


def _numbers(values: Values, names: Sequence[str]) -> set[int]:
    told = (values[name] for name in names if name in values)
    return {int(value) for value in told if value.isdecimal() and int(value) < _LARGEST}


def _is_torch(frame: Frame) -> bool:
    return "torch/distributed/" in frame.file

"""Calls of the table of collectives: noted as events, with what they make equal on all ranks."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.facts.collectives import Argument, Collective, collectives
from whichrank.source.code import libraries
from whichrank.source.code.calling.silencing import backward
from whichrank.source.code.calling.sources import rank_value
from whichrank.source.code.evaluating.choices import AGREED_TAG, CARRIED
from whichrank.source.code.evaluating.containers import ONE_OF_SEVERAL
from whichrank.source.code.evaluating.expressions import OWN_WIDTH
from whichrank.source.code.evaluating.types import RECEIVES, type_of
from whichrank.source.code.events import Op
from whichrank.source.code.paths import groups
from whichrank.source.code.receivers import is_a
from whichrank.source.code.summaries import Noted
from whichrank.source.code.values import (
    UNKNOWN,
    WORLD,
    Origin,
    Value,
    constant,
    union,
)
from whichrank.source.nodes import dotted

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

_OWN_PART = frozenset({
    "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "_reduce_scatter_base", "scatter", "all_to_all",
    "all_to_all_single",
})  # fmt: skip
"""Operations after which every rank holds another part in the first argument."""
_MESSAGES = frozenset({"send", "recv", "isend", "irecv"})


def row_of(frame: Frame, made: Call) -> Collective | None:
    """The row of the table that this call is, if it is one."""
    for spec in collectives().get(made.name, ()):
        if spec.needs and not _given(made, spec.needs):
            continue
        if spec.on == "*":
            if made.receiver_text or made.name == made.full:
                return spec
        elif spec.on.startswith("@"):
            if is_a(frame, made, spec.on[1:]):
                return spec
        elif _in_module(made, spec.on):
            return spec
    return None


def _in_module(made: Call, prefix: str) -> bool:
    if prefix == "deepspeed":
        return made.full == f"deepspeed.{made.name}"
    if made.full.startswith(prefix + "."):
        return True
    if prefix == "torch.distributed":
        head = made.full.rpartition(".")[0]
        return head.startswith("deepspeed.comm") or head in {"dist", "torch_dist", "deepspeed.comm.comm"}
    if prefix == "torch.distributed.checkpoint":
        return made.full.rpartition(".")[0] == "dcp"
    return (
        prefix == "torch.nn.parallel" and made.full.startswith("torch.nn.") and made.name == "DistributedDataParallel"
    )


def _given(made: Call, needs: str) -> bool:
    keyword, _, wanted = needs.partition("=")
    value = made.keywords.get(keyword)
    return value is not None and value.ranks is not None and str(value.ranks[0]) == wanted


def operation(frame: Frame, made: Call, spec: Collective) -> Value:
    """A collective: noted as an event, and what it makes equal on all ranks."""
    group, group_node = made.argument(spec.group)
    root, root_node = made.argument(spec.root)
    op_node = made.argument(spec.op)[1]
    whole = spec.group is not None and spec.group.keyword == "device_mesh" and not isinstance(group_node, ast.Subscript)
    text = "" if whole else groups.group_text(group, group_node)
    event = Op(spec.call, spec.kind, frame.function, made.node.lineno, text)
    event.members = group.ranks if "group" in group.tags else None
    if text in frame.function.params:
        frame.groups.add(text)
    if event.members is not None and spec.kind == "collective" and not frame.control and not frame.left:
        _foreign_member(frame, event, group)
    event.root = ast.unparse(root_node) if root_node is not None else ""
    event.reduction = ast.unparse(op_node) if op_node is not None else ""
    event.peer = root
    if spec.kind in _MESSAGES:
        event.message, event.label = made.argument(Argument("tensor", 0))[0], _label(made)
    if spec.on.startswith("@"):
        event.tag = spec.on[1:]
    if spec.kind == "group" and "use_local_synchronization" in made.keywords:
        return UNKNOWN
    frame.emit(backward(frame, event, made.node) if spec.call in {"backward", "manual_backward"} else event)
    _note(frame, made, spec, event)
    if spec.on == "torch.distributed":
        _foreign_root(frame, made, event, group)
        _types_apart(frame, made, event)
    _make_uniform(frame, made, spec)
    if spec.call in _OWN_PART and spec.on == "torch.distributed" and made.node.args:
        part = Origin("data", f"this rank's part of what {spec.call} gave", *frame.at(made.node))
        frame.put_into(made.node.args[0], Value(frozenset({part})))
    if spec.call == "init_process_group":
        _told_rank(frame, made)
    if spec.call == "all_to_all_single":
        _half_split(frame, made, event)
    if spec.kind == "group":
        _own_members(frame, made, event)
        return libraries.group_value(made, inside_loop=bool(frame.loops))
    return libraries.result(frame, made, spec)


def _note(frame: Frame, made: Call, spec: Collective, op: Op) -> None:
    """Arguments that all ranks have to agree on, where they may differ."""
    frame.analysis.notes.operations += 1
    payload = UNKNOWN
    if spec.payload is not None and spec.payload < len(made.args):
        payload = made.args[spec.payload]
        if OWN_WIDTH in payload.tags and not frame.analysis.traits.one_width:
            said = "this rank's batch is padded to its own longest sequence"
            payload = payload._replace(length=payload.length | {Origin("data", said, *frame.at(made.node))})
    root, reduction = made.argument(spec.root)[0], made.argument(spec.op)[0]
    if root.taint or reduction.taint or payload.length or payload.cast:
        frame.analysis.notes.noted.append(Noted(op, root, reduction, payload))


def _own_members(frame: Frame, made: Call, event: Op) -> None:
    """Members of a new group that every rank works out for itself."""
    members = made.argument(Argument("ranks", 0))[0] if made.name == "new_group" else UNKNOWN
    alike = members.ranks is not None and len(set(map(str, members.ranks))) == 1
    alike = alike or members.ranks == tuple([rank] for rank in range(WORLD))  # a group of its own for each
    if (members.taint or members.length) and not alike:
        frame.analysis.notes.local_groups.append((event, union(members.taint, members.length)))


def _label(made: Call) -> Value:
    """The tag of a message: 0 where none is given."""
    value, node = made.argument(Argument("tag", 3))
    return value if node is not None or "**" in made.keywords else constant(0)


def _foreign_member(frame: Frame, event: Op, group: Value) -> None:
    """A member of one rank's group that uses another group here: its group waits for it."""
    members = [list(range(WORLD)) if each is None else each for each in event.members or ()]
    if not all(isinstance(each, list) for each in members):
        return
    for rank, mine in enumerate(members):
        for other in mine:
            if isinstance(other, int) and 0 <= other < WORLD and other != rank and members[other] != mine:
                said = f"rank {rank} waits in a group with rank {other}, which uses the group {members[other]}"
                frame.analysis.notes.other_groups.append((event, group.taint, said))
                return


def _foreign_root(frame: Frame, made: Call, event: Op, group: Value) -> None:
    """`broadcast(x, src=0, group=mine)`: a rank of the world, which is in one of several groups only."""
    roots = event.peer.ranks
    by_place = any((keyword.arg or "").startswith("group_") for keyword in made.node.keywords)
    if event.kind != "collective" or not event.group or not event.root or roots is None or by_place:
        return
    if frame.control or frame.left or not isinstance(roots[0], int) or len(set(roots)) > 1:
        return
    if group.ranks is None:
        several = bool(group.tags & {ONE_OF_SEVERAL, "mesh"})
    else:
        several = any(
            isinstance(each, list) and rank in each and roots[0] not in each for rank, each in enumerate(group.ranks)
        )
    if several:
        said = f"the root is rank {roots[0]} of the whole job, which is a member of one of several groups only"
        origin = Origin("part", f"the group {event.group} is another one on other ranks", *frame.at(made.node))
        frame.analysis.notes.foreign_roots.append((event, origin, said))


def _types_apart(frame: Frame, made: Call, event: Op) -> None:
    """What is received has to be of the type that is sent."""
    sides = RECEIVES.get(made.name)
    if sides is None or frame.analysis.traits.own_types:
        return
    received, sent = (type_of(made.argument(Argument(*side))[0]) for side in sides)
    if received and sent and received != sent:
        said = f"it sends {sent} and receives into {received}"
        origin = Origin("rank", said, *frame.at(made.node))
        frame.analysis.notes.types_apart.append((event, origin, said))


def _told_rank(frame: Frame, made: Call) -> None:
    """`init_process_group(rank=gpu)`: whatever it is called, this variable is the rank."""
    value, node = made.argument(Argument("rank", 4))
    text = dotted(node) if node is not None else ""
    if text and not any(isinstance(origin, Origin) for origin in value.taint):
        known = rank_value(frame, made.node, f"{text}, given to init_process_group as the rank", "rank", "world")
        if text in frame.env:
            frame.env[text] = known
        elif "." in text:
            frame.paths[text] = known
            if text.startswith("self."):
                frame.writes[text[5:]] = known


def _half_split(frame: Frame, made: Call, event: Op) -> None:
    """Sizes that this rank worked out from its own data, without those that the others will send."""
    (theirs, out_node), (mine, in_node) = (
        made.argument(Argument(name, at)) for name, at in (("output_split_sizes", 2), ("input_split_sizes", 3))
    )
    given = [node is not None and not _none(node) for node in (out_node, in_node)]
    same = all(given) and out_node is not None and in_node is not None and ast.unparse(out_node) == ast.unparse(in_node)
    if same or given.count(True) == 1 or (all(given) and mine.taint == theirs.taint and _own_data(mine)):
        taint = union(mine.taint, mine.length, theirs.taint, theirs.length)
        if taint:
            frame.analysis.notes.half_splits.append((event, taint))


def _own_data(sizes: Value) -> bool:
    """Whether sizes come from what this rank has, not from its place among the ranks."""
    kinds = {origin.kind for origin in sizes.taint if isinstance(origin, Origin)}
    return "data" in kinds and not kinds & {"rank", "part"}


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _make_uniform(frame: Frame, made: Call, spec: Collective) -> None:
    for place in spec.uniform - {"result"}:
        if int(place) < len(made.node.args):
            _cleanse(frame, made.node.args[int(place)])
    if "0" in spec.uniform and not made.node.args:
        for keyword in made.node.keywords:
            if keyword.arg in {"tensor", "object_list", "tensor_list", "output_tensor"}:
                _cleanse(frame, keyword.value)


def _cleanse(frame: Frame, node: ast.expr) -> None:
    """All ranks have the same in this variable now."""
    while isinstance(node, ast.Subscript | ast.Starred) or (isinstance(node, ast.Attribute) and node.attr == "data"):
        node = node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _cleanse(frame, node.func.value)  # x.detach(), x.view(-1)
    text = dotted(node)
    if isinstance(node, ast.Name) and node.id in frame.env:
        frame.env[node.id] = Value(tags=(frame.env[node.id].tags - CARRIED) | {"shared", AGREED_TAG})
    elif text:
        frame.paths[text] = Value(tags=frozenset({"shared", AGREED_TAG}))
        if text.startswith("self."):
            frame.writes[text[5:]] = UNKNOWN
    if isinstance(node, ast.List | ast.Tuple):
        for item in node.elts:
            _cleanse(frame, item)
    return None

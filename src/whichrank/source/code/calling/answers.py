"""Calls whose answer differs between ranks: the rank itself, its data, its clock, its files, its environment."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from whichrank.facts.collectives import Argument, RankSource, rank_sources
from whichrank.source.code.calling.handed_over import waited_for
from whichrank.source.code.calling.sources import asked_environment, of_another, rank_value
from whichrank.source.code.evaluating.choices import AGREED_TAG
from whichrank.source.code.evaluating.disks import NODE_LOCAL, host_state, on_this_host
from whichrank.source.code.evaluating.expressions import mixed
from whichrank.source.code.paths import groups
from whichrank.source.code.randomness import library_of
from whichrank.source.code.values import UNKNOWN, Origin, Value

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

READS = frozenset({"open", "read_text", "read_bytes", "urlopen", "load", "loads", "read_csv", "imread", "load_image"})
_ENVIRONMENT = re.compile(r"(?:^|[._])(?:vec_|train_|eval_)?envs?$")
"""What people call the world of an agent that learns by trying."""
_TRANSLATES = frozenset({"get_global_rank", "get_group_rank"})
"""The number in one group for a number in another: of any rank, not of this one."""
_NOT_FINITE = frozenset({"isnan", "isinf", "isfinite"})
_REDUCED = re.compile(r"reduced|global|synced|gathered|avg|mean|total|config|args")


def differing(frame: Frame, made: Call) -> Value | None:
    """A call whose answer differs between ranks."""
    source = rank_sources("call").get(made.name)
    if source is not None:
        return _own_place(frame, made, source)
    if made.name in {"step", "reset", "rollout", "collect"} and _ENVIRONMENT.search(made.receiver_text):
        origin = Origin("data", f"the simulation of this rank ({made.receiver_text})", *frame.at(made.node))
        return Value(frozenset({origin}))
    if made.name in _NOT_FINITE and (own := _own_loss(frame, made)) is not None:
        return own
    if made.name in READS and made.node.args and (told := host_state(made.node.args[0])):
        return Value(frozenset({Origin("host", f"{told} on this host", *frame.at(made.node))}))
    return _library_source(frame, made) or _method_source(frame, made) or _environment(frame, made)


def _own_place(frame: Frame, made: Call, source: RankSource) -> Value:
    """The rank, or the place in a group or a mesh."""
    if made.name in _TRANSLATES and len(made.args) > 1:
        return mixed(made.args)
    if of_another(made):
        return mixed(list(made.keywords.values()))
    value, node = made.argument(Argument("group", 0))
    within = groups.of_mesh(made.node.func, made.receiver) or groups.group_text(value, node)
    if within and source.kind == "rank":
        said = str(node.value) if isinstance(node, ast.Constant) else within
        return rank_value(frame, made.node, f"{made.name}({said})", "part", "group")
    return rank_value(frame, made.node, f"{made.name}()", source.kind, source.axis)


def _library_source(frame: Frame, made: Call) -> Value | None:
    """A function of Python or of a library that answers each rank differently."""
    known = rank_sources("function").get(made.full)
    if known is not None:
        if known.kind == "random" and "generator" in made.keywords:
            return Value(made.keywords["generator"].taint)
        if known.kind == "random" and library_of(made.full) in frame.analysis.seeded:
            return UNKNOWN
        local = known.kind == "file" and on_this_host(made.args)
        what = f"{made.full}() on a disk of this host" if local else f"{made.full}()"
        value = rank_value(frame, made.node, what, "host" if local else known.kind, known.axis)
        return value._replace(length=value.taint)
    return None


def _method_source(frame: Frame, made: Call) -> Value | None:
    """A method of a path or of a queue."""
    for how, words in (
        ("path method", ("path", "file", "ckpt", "checkpoint", "dir")),
        ("queue method", ("queue", "q")),
    ):
        method = rank_sources(how).get(made.name)
        hint = made.receiver_text.rpartition(".")[2].lower()
        named = any(word in hint for word in words[:-1]) or hint == words[-1] or hint.endswith(f"_{words[-1]}")
        local = method is not None and method.kind == "file" and on_this_host([made.receiver])
        if method is not None and (named or local or how.split()[0] in made.receiver.tags):
            if how == "queue method" and (waited := waited_for(frame, made)) is not None:
                return waited
            what = f"{made.receiver_text}.{made.name}()" + (" on a disk of this host" if local else "")
            value = rank_value(frame, made.node, what, "host" if local else method.kind, method.axis)
            return value.tagged("optional") if how == "queue method" else value
    return None


def _environment(frame: Frame, made: Call) -> Value | None:
    """A variable of the environment."""
    if made.name in {"get", "getenv", "pop"} and ("environ" in made.receiver_text or made.full == "os.getenv"):
        first = made.node.args[0] if made.node.args else None
        asked = asked_environment(frame, made.node, first)
        if len(made.args) > 1 and on_this_host(made.args[1:]):  # os.environ.get("WORK", "/tmp/work")
            return asked.tagged(NODE_LOCAL)
        return asked
    return None


def _own_loss(frame: Frame, made: Call) -> Value | None:
    """`torch.isnan(loss)`: one rank's loss, where nothing says that it was reduced over the ranks."""
    node = made.node.args[0] if made.node.args else getattr(made.node.func, "value", None)
    value = made.args[0] if made.args else made.receiver
    text = ast.unparse(node).lower() if node is not None else ""
    if "loss" not in text or _REDUCED.search(text) or AGREED_TAG in value.tags or value.ranks is not None:
        return None
    if any(isinstance(origin, Origin) for origin in value.taint):
        return None
    return Value(value.taint | {Origin("data", f"{made.name}() of this rank's loss", *frame.at(made.node))})

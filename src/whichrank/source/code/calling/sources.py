"""What a name of the table of sources stands for: the rank, a variable of the environment, a setting."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from whichrank.facts.collectives import rank_sources
from whichrank.source.code.evaluating.disks import asked_directory
from whichrank.source.code.values import UNKNOWN, WORLD, Origin, Value, per_rank, world_size

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

_SETTINGS = re.compile(r"(?:^|\.)(?:args|opts?|cfg|config|conf|hparams|options|flags|FLAGS|run_opts)\.\w+$")
KEYS = frozenset({"rank", "local_rank", "global_rank", "world_rank", "is_main", "is_main_process", "process_index"})
"""What says under which rank a process runs, as the key of a dictionary."""


def is_setting(text: str) -> bool:
    """`args.x`, `self.cfg.x`: configuration that is handed through a program."""
    return _SETTINGS.search(text) is not None


def setting_name(text: str) -> str:
    return ".".join(text.rsplit(".", 2)[-2:])


def rank_value(frame: Frame, node: ast.AST, what: str, kind: str, axis: str) -> Value:
    """What a name of the table of sources stands for."""
    reason = "part" if kind == "part" else "rank" if kind in {"first", "last"} else kind
    origin = Origin(reason, what, *frame.at(node), local=axis == "local")
    ranks: tuple[Any, ...] | None = None
    if kind == "rank" and axis in {"world", "local"}:  # local ranks as on one node
        ranks = tuple(range(WORLD))
    elif kind in {"first", "last"}:
        ranks = tuple(rank == (0 if kind == "first" else WORLD - 1) for rank in range(WORLD))
    return Value(frozenset({origin}), ranks=ranks)


def of_another(made: Call) -> bool:
    """`topology.get_rank(pipe=0, data=1)`: the rank of whoever stands there, not this one."""
    return made.name == "get_rank" and any(keyword.arg != "group" for keyword in made.node.keywords)


def asked_environment(frame: Frame, node: ast.AST, name: ast.expr | None) -> Value:
    """A variable of the environment by its name, or by a parameter that brings the name."""
    if isinstance(name, ast.Name) and name.id in frame.function.params:
        frame.asks_for = name.id
    return environment(frame, node, name.value if isinstance(name, ast.Constant) else "")


def environment(frame: Frame, node: ast.AST, name: object) -> Value:
    """One variable of the environment."""
    source = rank_sources("environment").get(str(name))
    if source is None:
        if (directory := asked_directory(name)) is not None:
            return directory
        return world_size() if name == "WORLD_SIZE" else UNKNOWN
    value = rank_value(frame, node, f"the environment variable {name}", source.kind, source.axis)
    return value._replace(ranks=per_rank(str, value))

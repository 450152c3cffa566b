"""Text that one command of a pipeline prints and the next one takes for variables: `settings | while read -r kv; do
export "$kv"; done`. Each part of a pipeline is a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.records.settings import UNKNOWN
from whichrank.source.shell import documents
from whichrank.source.shell.syntax import Loop, Node, Simple, Step

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.state import Environment

_LONGEST = 20_000


def _takes_variables(node: Node) -> bool:
    if isinstance(node, Loop):
        return bool(documents.read_names(node)) and not any(each.body for each in node.redirects)
    words = [word.raw for word in node.words] if isinstance(node, Simple) else []
    return words[:1] in (["source"], ["."]) and words[1:2] in (["/dev/stdin"], ["-"])


def into_next(shell: Interpreter, steps: list[Step], index: int, env: Environment, *, sure: bool) -> bool:
    """Follow a part of a pipeline whose output the next one reads into variables; False for any other command."""
    step = steps[index]
    shell.piped = shell.piped if step.apart else ""
    following = steps[index + 1] if index + 1 < len(steps) else None
    if not step.apart or step.background or following is None or not following.apart or shell.outputs is not None:
        return False
    if not _takes_variables(following.node):
        return False
    shell.outputs = []
    shell.node(step.node, env, sure=sure)
    printed, shell.outputs = "".join(shell.outputs), None
    known = len(printed) <= _LONGEST and UNKNOWN not in printed
    shell.piped = printed if known else ""
    return True

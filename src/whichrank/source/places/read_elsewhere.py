"""Variables of a script in a text that another shell reads, on another host or without what was not exported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from whichrank.facts.variables.environment import counts
from whichrank.records.settings import UNKNOWN, Clash
from whichrank.source.shell.words import pieces

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.state import Environment
    from whichrank.source.shell.tokens import Redirect
    from whichrank.source.shell.words import Field

_USED = re.compile(
    r"(?<![\w-])(--(?:master[-_](?:addr|port)|rdzv[-_]\w{1,12}|nnodes|nproc[-_]per[-_]node|node[-_]rank|machine[-_]rank"
    r"|num[-_]\w{1,12}|main[-_]process[-_]\w{1,6})[= ]\s{0,4}|[A-Z][A-Z0-9_]{2,60}=)[\"']?(?:[^\s\"'$;|&]{1,80}[:,])?"
    r"\$\{?([A-Za-z_]\w{0,60})(?=[}\W]|$)(?!\}?:?[-=])"
)
_TOLD = frozenset({"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "NODE_RANK", "LOCAL_RANK", "NNODES"})
_SOURCES = re.compile(r"(?:^|[\s;&(])(?:source|\.)\s+\S")
_LONGEST, _MOST_WORDS, _MOST_USES = 20_000, 64, 32


def in_words(
    shell: Interpreter, words: Sequence[Field], command: Sequence[Field], env: Environment, *, remote: bool
) -> Iterator[Clash]:
    """`ssh host 'torchrun --master-addr=$HEAD …'`: HEAD is a variable of this script alone."""
    if any("SendEnv" in word.text for word in command):
        return
    whole = " ".join(word.text for word in words)[:_LONGEST]
    for word in words[:_MOST_WORDS]:
        kept = "".join(part.text if part.kind == "text" else UNKNOWN for part in pieces(word.raw))[:_LONGEST]
        yield from _empty(shell, kept, whole, word.line, env, remote=remote)


def in_document(shell: Interpreter, body: Redirect, env: Environment, *, remote: bool) -> Iterator[Clash]:
    """The same in a here-document whose mark is quoted."""
    if body.literal and body.body:
        text = body.body[:_LONGEST]
        yield from _empty(shell, text, text, body.body_line, env, remote=remote)


def _empty(shell: Interpreter, text: str, whole: str, line: int, env: Environment, *, remote: bool) -> Iterator[Clash]:
    if _SOURCES.search(whole):
        return  # that file may set it
    for match in islice(_USED.finditer(text), _MOST_USES) if "$" in text else ():
        given, name = match[1].strip().rstrip("="), match[2]
        variable = env.variables.get(name)
        stays = env.left if variable is None else {name} if remote or not variable.exported else set()
        if name not in stays or not (given.startswith("--") or counts(given) or given in _TOLD):
            continue
        if re.search(rf"(?<![\w$-]){name}=|\b(?:read|for|local|declare)\b[^;\n]{{0,80}}\b{name}\b", whole):
            continue
        where = "on the other host" if remote else "that is started, to which it is not exported"
        why = f"${name} is put in by the shell {where}, where it is empty"
        fix = "Use double quotes, so that this script puts it in." if remote else f"Write: export {name}"
        at = line + text.count("\n", 0, match.start())
        yield Clash(given, shell.ref(at), why, fix)

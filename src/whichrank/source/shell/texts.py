"""Texts inside a script: other scripts, files that it sources, and files that it writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whichrank.records.settings import UNKNOWN, Assignment, Baked, How
from whichrank.source.shell import batch, directives, documents, held, launchers
from whichrank.source.shell.state import NESTING_LIMIT, Environment, Written
from whichrank.source.shell.syntax import parse
from whichrank.source.shell.tokens import Redirect

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.words import Field


def inner(shell: Interpreter, text: str, line: int, env: Environment, *, sure: bool) -> None:
    """A script inside the script."""
    if shell.nesting > NESTING_LIMIT or len(text) > 1_000_000:
        return
    shell.nesting += 1
    script = parse(text, line)
    for comment in script.comments:
        if batch.is_directive(comment.text):
            directives.directive(shell, comment.text, comment.line, env)
    shell.walk(script.body, env, sure=sure)
    shell.nesting -= 1


def include(shell: Interpreter, path: str, env: Environment, *, sure: bool, exported: bool = False) -> None:
    """A file that is sourced: followed where it is at hand."""
    found = shell.neighbour(path) if shell.neighbour is not None else None
    shell.out.included[path.replace(UNKNOWN, "")] = exported or env.export_all
    own = shell.files.get(path.rsplit("/", 1)[-1]) if found is None else None
    if own is not None and shell.away:
        inner(shell, own.text.replace(UNKNOWN, "${UNKNOWN}"), own.line, env, sure=sure)
    if found is None or shell.nesting > NESTING_LIMIT:
        return
    label, text = found
    kept, shell.label = shell.label, label
    shell.quotes[label] = text.split("\n")
    before, env.export_all = env.export_all, env.export_all or exported
    inner(shell, text, 1, env, sure=sure)
    env.export_all, shell.label = before, kept
    env.ended = False


def printed(shell: Interpreter, command: list[Field], redirects: list[Redirect]) -> None:
    """`echo NCCL_X=1 >> /etc/nccl.conf` writes a setting; other output sets nothing."""
    target = documents.written_to(redirects) or shell.target
    how = documents.kind_of_target(target)
    if how not in {"conf", "env", "profile"} or launchers.base(command[0]) not in {"echo", "printf"}:
        return
    for item in command[1:]:
        for text in item.text.replace("\\n", "\n").split("\n"):
            if match := re.fullmatch(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*?)\s*", text):
                written(shell, match[1], match[2], item.line, how)
    if how == "conf":
        shell.out.baked.append(Baked(target, shell.ref(command[0].line)))


def written(shell: Interpreter, name: str, value: str, line: int, how: str) -> None:
    unknown = UNKNOWN in value or "$" in value
    text = value.strip("\"'") if how == "profile" else value
    mode: How = "conf" if how == "conf" else "export"
    shell.out.assignments.append(
        Assignment(name, None if unknown else text, shell.ref(line), shell.out.label, mode, partial=text)
    )


def document(
    shell: Interpreter, body: Redirect, redirects: list[Redirect], env: Environment, program: str = "cat"
) -> None:
    """A here-document: a file that is written, or only text."""
    target = documents.written_to(redirects) or shell.target
    how = documents.kind_of_target(target, body.body, program)
    if target:
        text = documents.filled(body, shell.lookup(env))
        shell.files[target.rsplit("/", 1)[-1]] = Written(text, body.body_line)
    if how in {"conf", "env", "profile"}:
        for offset, line in enumerate(body.body.split("\n")):
            if match := re.fullmatch(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*?)\s*", line):
                written(shell, match[1], match[2], body.body_line + offset, how)
        if how == "conf":
            shell.out.baked.append(Baked(target, shell.ref(body.body_line)))
    elif how == "shell":
        text = documents.unescaped(body)
        name = _named(target, env)
        shell.scripts[name] = (text, body.body_line)
        if not shell.on_every_host:
            shell.early_files[name] = held.early_in(body.body, body.body_line, shell.per_task, literal=body.literal)
        written_script(shell, text, body.body_line, env)
    elif how == "python":
        python_program(shell, body)
    elif how in {"manifest", "dockerfile"}:
        documents.other(how, body, shell.out)


def _named(target: str, env: Environment) -> str:
    """The name of a script that is written; one that only a variable holds (`$(mktemp)`) is called after that."""
    held_by = re.fullmatch(r"\$\{?(\w{1,60})\}?", target)
    variable = env.variables.get(held_by[1]) if held_by else None
    if held_by is None or variable is None or variable.value.text.strip(UNKNOWN):
        return target.rsplit("/", 1)[-1]
    name = f"{held_by[1]}.sh"
    env.variables[held_by[1]] = variable._replace(value=variable.value._replace(text=f"{UNKNOWN}/{name}"))
    return name


def written_script(shell: Interpreter, text: str, line: int, env: Environment) -> None:
    """A script that is written to a file: one that starts nothing is for others to source."""
    launches, before = len(shell.launches), len(shell.made)
    inner(shell, text, line, Environment(level=env.level + 1), sure=True)
    if len(shell.launches) == launches:
        for made in shell.made[before:]:
            made.reached = True


def python_program(shell: Interpreter, body: Redirect) -> None:
    from whichrank.source import program

    shell.out.add(program.read(body.body, shell.out.label, body.body_line))

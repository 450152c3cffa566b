"""Commands and scripts inside files of other formats, run with the environment that the file gives them."""

from __future__ import annotations

import re
from typing import NamedTuple

from whichrank.facts.variables.environment import catalogue, in_family
from whichrank.records.settings import Lost, SettingsFile
from whichrank.source.shell import directives, starting, texts
from whichrank.source.shell.allocation import Allocation
from whichrank.source.shell.interpret import Interpreter
from whichrank.source.shell.outcome import conclude
from whichrank.source.shell.passage import is_training
from whichrank.source.shell.state import Environment
from whichrank.source.shell.syntax import parse
from whichrank.source.shell.words import Field, Value


class Given(NamedTuple):
    """A variable that the surrounding file sets."""

    name: str
    text: str
    line: int
    own: bool = False
    """Name or address of the host or pod itself: another one in each of them."""
    drawn: bool = False
    """Differs on each of them, and is neither a name nor an address: a UID, a boot id."""


def run_script(
    text: str,
    label: str,
    line: int,
    lines: list[str],
    given: list[Given] | None = None,
    size: Allocation | None = None,
) -> SettingsFile:
    """Shell text; the note says "launched" where it starts a training."""
    shell, env = _prepared(label, lines, given or [])
    _sized(shell, size)
    script = parse(text, line)
    for comment in script.comments:
        directives.directive(shell, comment.text, comment.line, env)
    shell.walk(script.body, env, sure=True)
    shell.left_over(env)
    return _concluded(shell)


def run_command(
    words: list[tuple[str, str, int]],
    label: str,
    lines: list[str],
    given: list[Given],
    size: Allocation | None = None,
    *,
    many_hosts: bool = False,
    host: str = "",
    literal: str = "",
) -> SettingsFile:
    """A command given as a list, without a shell: each word as its text, the same as a script, and its line.

    Literal: who starts it without putting in variables (`$NAME` stays as it is).
    """
    shell, env = _prepared(label, lines, given)
    _sized(shell, size)
    shell.host = host
    command = [Field(body if "\n" in body else text, line) for text, body, line in words]
    if command and "=" in command[0].text and command[0].text.partition("=")[0].isidentifier():
        name = command[0].text.partition("=")[0]
        if name in catalogue() or in_family(name):
            why = "no shell reads this command: NAME=VALUE in front of it is taken for the name of the program"
            fix = f"Put {name} into the environment block, or write sh -c '…'."
            shell.out.lost.append(Lost(name, shell.ref(command[0].line), why, fix, "error"))
        command = command[1:]
    if len(command) == 1 and re.search(r"\s", command[0].text):  # args of an entry point that is a shell
        texts.inner(shell, command[0].text, command[0].line, env, sure=True)
        command = []
    if command and literal and is_training(command):
        _literal_dollars(shell, command, env, literal)
    if command and many_hosts:
        command = _on_many_hosts(command)
    if command:
        starting.start(shell, command, [], env, sure=True)
    return _concluded(shell)


# What launchers and operators set; other names may be for a tool that fills in the file first, such as envsubst.
OF_LAUNCHERS = re.compile(
    r"MASTER_(?:ADDR|PORT)|(?:LOCAL_|NODE_)?RANK|WORLD_SIZE|HOSTNAME|JOB_COMPLETION_INDEX|SLURM_\w+"
)


IN_BRACKETS = "a command in brackets"
"""Who starts a command of a Dockerfile; no tool fills in that file first, so that all names are meant for a shell."""


def _literal_dollars(shell: Interpreter, command: list[Field], env: Environment, who: str) -> None:
    for field in command:
        match = re.search(r"(?<![$\\])\$(?:\{(\w+)\}|([A-Za-z_]\w*))", field.text)
        name = (match[1] or match[2]) if match else ""
        if match and (who == IN_BRACKETS or name in env.variables or OF_LAUNCHERS.fullmatch(name)):
            why = f"{who} starts the program without a shell, so {match.group()} stays as it is"
            fix = "Write sh -c '…' around the command, or give the value itself."
            shell.out.lost.append(Lost(name, shell.ref(field.line), why, fix))


def _sized(shell: Interpreter, size: Allocation | None) -> None:
    if size is not None:
        shell.allocation, shell.on_every_host = size, int(size.nodes is not None)


def _on_many_hosts(command: list[Field]) -> list[Field]:
    """mpirun of an MPIJob has its hosts from the operator, not from its command line."""
    if command[0].text.rsplit("/", 1)[-1] in {"mpirun", "mpiexec"}:
        return [
            command[0],
            Field("--hostfile", command[0].line),
            Field("/etc/mpi/hostfile", command[0].line),
            *command[1:],
        ]
    return [f._replace(text=f.text.replace("mpirun ", "mpirun --hostfile /etc/mpi/hostfile ", 1)) for f in command]


def _prepared(label: str, lines: list[str], given: list[Given]) -> tuple[Interpreter, Environment]:
    shell = Interpreter(SettingsFile.empty(label, "shell"), lines, 1, None)
    env = Environment()
    for item in given:
        shell.assign(item.name, Value(item.text), item.line, env, sure=True, exported=True)
        if item.own:
            shell.hostnames[item.name] = item.line
        elif item.drawn:
            shell.randoms[item.name] = item.line
    for made in shell.made:
        made.given = True
    return shell, env


def _concluded(shell: Interpreter) -> SettingsFile:
    out = conclude(shell)
    out.note = "launched" if shell.launches else ""
    return out

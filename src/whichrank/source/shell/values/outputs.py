"""What functions of a script print, for `$(remote_exports)`: the variables that another host is told of."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from whichrank.records.settings import UNKNOWN
from whichrank.source.shell import documents
from whichrank.source.shell.state import Environment, Variable, Written
from whichrank.source.shell.syntax import Function, commands
from whichrank.source.shell.tokens import Redirect, Word, split_words
from whichrank.source.shell.words import LONGEST, OUTPUT_OF, Field, Lookup, Value, fields

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter

_FORMATS = re.compile(r"%(?:%|-?\d{0,4}[sqbdi])")
_MOST_ROUNDS = 256


def follow(shell: Interpreter, text: str, line: int, env: Environment) -> None:
    """`$(name arguments)` of a function of the script: keep what it prints."""
    words = split_words(text.strip(), line)
    name = words[0].raw if words else ""
    lists = name in {"declare", "typeset"} and len(words) > 2
    if (name not in shell.functions and not lists) or shell.outputs is not None:
        return
    if re.search(r"[|;&<>`]|\$\(", text):
        return
    shell.outputs = []
    inner = env.copy(apart=True)
    if lists:
        declared(shell, words[1:], inner)
    else:
        shell.call(name, [field for word in words for field in fields(word, shell.lookup(env))], inner, sure=False)
    printed, shell.outputs = "".join(shell.outputs).rstrip("\n"), None
    env.variables.pop(OUTPUT_OF + text.strip(), None)
    if printed and len(printed) <= LONGEST:
        env.variables[OUTPUT_OF + text.strip()] = Variable(Value(printed, fixed=False), False)


def keep(shell: Interpreter, command: list[Field], redirects: list[Redirect], env: Environment) -> None:
    """What one command prints: inside of such a function, or into a file."""
    target = documents.written_to(redirects) or shell.target
    if target and command[0].text != "cat":
        before = shell.files.get(_base(target), Written("", command[0].line))
        made = _printed(command, redirects, shell.lookup(env))
        if made and len(before.text) + len(made) <= LONGEST:
            shell.files[_base(target)] = before._replace(text=before.text + made)
    elif shell.outputs is not None and not target and not any("&" in each.operator for each in redirects):
        shell.outputs += [_printed(command, redirects, shell.lookup(env))] if len(shell.outputs) < _MOST_ROUNDS else []


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _printed(command: list[Field], redirects: list[Redirect], lookup: Lookup) -> str:
    program, body = command[0].text, next((each for each in redirects if each.body), None)
    if program == "cat" and body is not None:
        return documents.filled(body, lookup)
    words = [field.text for field in command[1:]]
    if program == "echo":
        option = words[0] if words and re.fullmatch(r"-[neE]{1,3}", words[0]) else ""
        return " ".join(words[1:] if option else words) + ("" if "n" in option else "\n")
    if program == "printf" and words and words[0] != "-v":
        return _formatted(*[word for word in words if word != "--"])
    return ""


_COPIES = frozenset({"scp", "rsync", "cp", "pdcp", "install"})


def copied(shell: Interpreter, command: list[Field]) -> None:
    """A file that the script wrote, under another name: `scp "$FILE" host:/tmp/job.env`."""
    if command[0].text not in _COPIES:
        return
    *sources, target = [field for field in command[1:] if not field.text.startswith("-")] or [command[0]]
    name = _base(target.text.rpartition(":")[2])
    for source in sources:
        known = _base(source.raw.strip("\"'")), _base(source.text)
        found = next((shell.files[each] for each in known if each in shell.files), None)
        if found is not None and name and len(sources) == 1:
            shell.files.setdefault(name, found)


def declared(shell: Interpreter, words: list[Word], env: Environment) -> None:
    """`declare -p NAME …` prints the commands that set these variables."""
    if shell.outputs is None or not words or not re.fullmatch(r"-[xp]{0,2}p[xp]{0,2}", words[0].raw):
        return
    for field in [field for word in words[1:] for field in fields(word, shell.lookup(env))][:_MOST_ROUNDS]:
        value = shell.lookup(env)(field.text)
        text = _one("%q", [value.text if value is not None else UNKNOWN])
        shell.outputs.append(f"export {field.text}={text}\n")


def _formatted(pattern: str = "", *given: str) -> str:
    """printf: the pattern again and again until nothing that is given is left."""
    pattern, left = pattern.replace("\\n", "\n").replace("\\t", "\t"), list(given)
    made: list[str] = []
    for _ in range(_MOST_ROUNDS):
        before = len(left)
        made.append(_FORMATS.sub(lambda found: _one(found.group(), left), pattern))
        if not left or len(left) == before:
            break
    return "".join(made)


def _one(how: str, left: list[str]) -> str:
    if how == "%%":
        return "%"
    text = left.pop(0) if left else ""
    if not how.endswith("q"):
        return text
    # What is not known is put in later, which single quotes would keep from being seen.
    return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"' if UNKNOWN in text else shlex.quote(text)


_PRINTS = re.compile(
    r"(?<![\w/$-])(?:(?:printenv|env)(?:$|\s+(?:-0|grep|egrep|sed|awk|while|sort)\b)|export -p"
    r"|(?:declare|typeset) -[px]{1,2}(?!\s+[\"$A-Z])|compgen -(?:[ev]|A \w{1,20}))"
)


def prints_environment(function: Function) -> str:
    """The commands of a function, all in one line, if one of them prints all variables: `env | grep ^NCCL_`."""
    text = " ".join(word.raw for command in commands(function.body) for word in command.words)[:LONGEST]
    found = _PRINTS.search(text)
    return text[found.start() :] if found else ""

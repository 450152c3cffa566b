"""Configuration of supervisord: programs with their command and environment."""

from __future__ import annotations

import re
from configparser import Error, RawConfigParser

from whichrank.facts.variables.environment import catalogue
from whichrank.model.evidence import Ref
from whichrank.records.settings import UNKNOWN, Assignment, Lost, SettingsFile
from whichrank.source import memory
from whichrank.source.formats import other_parts
from whichrank.source.places import each_host, left_as_text
from whichrank.source.shell.allocation import Allocation, Count
from whichrank.source.shell.embedded import Given, run_command
from whichrank.source.shell.tokens import split_words
from whichrank.source.shell.words import expand

KIND = "supervisor"
QUOTE_LIMIT = 300
_PAIR = re.compile(
    r"(?<![^,\s])([A-Za-z_]\w{0,80})[ \t]{0,8}=[ \t]{0,8}"
    r"(\"[^\"]{0,4000}\"|'[^']{0,4000}'|[^,\s]{0,4000})\s{0,8}(?:,|$)"
)
_OWN_NAME, _NOTHING = re.compile(r"%\(host_node_name\)s"), re.compile(r"(?!)")
_FILLED_IN = re.compile(r"%\([^)]{0,80}\)[sd]")


def read(text: str, label: str) -> SettingsFile:
    """Each program is an environment of its own, on top of what [supervisord] gives to all."""
    out = SettingsFile.empty(label, KIND)
    config = RawConfigParser(strict=False, inline_comment_prefixes=(";",))
    try:
        config.read_string(text)
    except Error as error:
        out.unread, out.note = True, f"not a configuration that can be parsed: {type(error).__name__}"
        return out
    lines = text.split("\n")
    shared = _environment(config, "supervisord", lines, out, label)
    trains: dict[str, bool] = {}
    started = False
    for section in config.sections():
        if not section.startswith("program:"):
            continue
        scope = f"{label}:{section}"
        given = [*shared, *_environment(config, section, lines, out, scope)]
        command, at = config.get(section, "command", fallback=""), _line(lines, section, "command")
        words = [
            expand(word.raw.replace("$", "\\$"), lambda _n: None).text for word in split_words(_known(command), at)
        ]
        if words:
            size = Allocation(grace=_grace(config, section, lines, at))
            spelled = [(word, at) for word in command.split()]
            found = run_command([(w, w, at) for w in words], label, lines, given, size, literal="supervisord")
            for launch in found.launches:
                each_host.tell(launch, spelled, _OWN_NAME, _NOTHING, lambda line: _ref(label, lines, line))
            out.add(found)
            trains[scope] = found.note == "launched" or other_parts.may_train(command)
            started |= found.note == "launched"
    if started:
        _of_others(out, trains)
    return out


def _of_others(out: SettingsFile, trains: dict[str, bool]) -> None:
    """Settings of a program that trains nothing, beside one that does and has them not."""
    there = {a.name for a in out.assignments if trains.get(a.scope, True)}
    for each in out.assignments:
        if (
            each.name not in there
            and each.name in catalogue()
            and other_parts.for_ranks_alone(each.name, each.value or "")
        ):
            why = "only a program that trains nothing has it, and the one that does goes without"
            out.lost.append(Lost(each.name, each.ref, why, "Move it to the program that trains."))


def _grace(config: RawConfigParser, section: str, lines: list[str], command: int) -> Count:
    """stopwaitsecs; 10 by default (supervisor's documentation)."""
    stated = memory.seconds(config.get(section, "stopwaitsecs", fallback=""))
    if stated is None:
        return Count(10, command, "stopwaitsecs (by default)", exact=False)
    return Count(stated, _line(lines, section, "stopwaitsecs"), "stopwaitsecs")


def _ref(label: str, lines: list[str], line: int) -> Ref:
    return Ref(label, f"line {line}", lines[line - 1].strip()[:QUOTE_LIMIT] if line <= len(lines) else "")


def _known(text: str) -> str:
    return _FILLED_IN.sub(UNKNOWN, text)


def _environment(config: RawConfigParser, section: str, lines: list[str], out: SettingsFile, scope: str) -> list[Given]:
    """`environment=A="1",B="2"`, which may go on in lines that are indented."""
    given = []
    start = _line(lines, section, "environment")
    value = config.get(section, "environment", fallback="")
    _split(out, value, start, lines)
    for match in _PAIR.finditer(value):
        at = start + value.count("\n", 0, match.start(1))
        text = _known(match[2].strip("\"'"))
        ref = _ref(out.label, lines, at)
        out.assignments.append(Assignment(match[1], None if UNKNOWN in text else text, ref, scope, "export"))
        given.append(Given(match[1], text, at, own=bool(_OWN_NAME.match(match[2].strip("\"'")))))
        if found := left_as_text.lost(match[1], text, ref, "supervisord"):
            out.lost.append(found)
    return given


def _split(out: SettingsFile, value: str, start: int, lines: list[str]) -> None:
    """A comma in a value without quotes begins the next pair (supervisor/datatypes.py: dict_of_key_value_pairs)."""
    name = ""
    for match in re.finditer(r"(?:[^,\"'\n]|\"[^\"]*\"|'[^']*')+", value):
        key, equals, _ = match.group().partition("=")
        if equals:
            name = key.strip()
        elif match.group().strip() and name:
            at = start + value.count("\n", 0, match.start())
            ref = _ref(out.label, lines, at)
            why = f"supervisord splits the list at commas and refuses '{match.group().strip()[:60]}'"
            out.lost.append(Lost(name, ref, why, f'Quote the value: {name}="…"', "error"))


def _line(lines: list[str], section: str, key: str) -> int:
    inside = False
    for number, line in enumerate(lines, 1):
        if line.startswith("["):
            inside = line.strip() == f"[{section}]"
        elif inside and re.match(rf"{key}\s*[=:]", line):
            return number
    return 1

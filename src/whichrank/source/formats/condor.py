"""HTCondor submit files: environment, arguments, and what the job asks for."""

from __future__ import annotations

import re

from whichrank.model.evidence import Ref
from whichrank.records.settings import UNKNOWN, Assignment, SettingsFile
from whichrank.source.shell.allocation import Allocation, Count
from whichrank.source.shell.embedded import Given, run_command

KIND = "htcondor"
QUOTE_LIMIT = 300
LINE_LIMIT = 20_000
_SETTING = re.compile(r"\s*\+?([A-Za-z_]\w*)\s*=\s*(.*)")


def read(text: str, label: str) -> SettingsFile:
    out = SettingsFile.empty(label, KIND)
    lines = text.split("\n")
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines, 1):
        match = _SETTING.fullmatch(line.rstrip()) if len(line) <= LINE_LIMIT else None
        if match and not line.lstrip().startswith("#"):
            found[match[1].lower()] = (match[2], number)
    value, at = found.get("environment", found.get("env", ("", 1)))
    given = []
    for name, text_value in _variables(value):
        known = re.sub(r"\$\([^)]*\)", UNKNOWN, text_value)
        ref = Ref(label, f"line {at}", lines[at - 1].strip()[:QUOTE_LIMIT])
        out.assignments.append(Assignment(name, None if UNKNOWN in known else known, ref, label, "export"))
        given.append(Given(name, known, at))
    program, _ = found.get("executable", ("", 1))
    arguments, start = found.get("arguments", ("", found.get("executable", ("", 1))[1]))
    words = [(program.strip(), program.strip(), start)] if program else []
    words += [(word, word, start) for word in re.sub(r"\$\([^)]*\)", UNKNOWN, arguments).strip('"').split()]
    if words:
        size = Allocation(_count(found, "machine_count"), _count(found, "request_gpus"))
        inner = run_command(words, label, lines, given, size)
        out.add(inner)
    return out


def _count(found: dict[str, tuple[str, int]], name: str) -> Count | None:
    value, line = found.get(name, ("", 1))
    return Count(int(value), line, name) if re.fullmatch(r"[1-9]\d{0,5}", value.strip()) else None


def _variables(value: str) -> list[tuple[str, str]]:
    """New syntax in double quotes, split at blanks; the old one without them, split at semicolons."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] == '"':
        items = re.findall(r"(\w+)=((?:'[^']*'|[^\s'])*)", value[1:-1])
        return [(name, text.replace("'", "")) for name, text in items]
    pairs = [item.partition("=") for item in value.split(";")]
    return [(name.strip(), text) for name, equals, text in pairs if equals and re.fullmatch(r"\s*\w+\s*", name)]

"""Dockerfiles: variables that an image carries, files that it bakes in, and exports that it loses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.facts.environment import catalogue
from whichrank.model.evidence import Ref
from whichrank.records.settings import Assignment, Baked, Lost, SettingsFile
from whichrank.source import shell
from whichrank.source._words import Word, commands, literal, plain

KIND = "dockerfile"
QUOTE_LIMIT = 300
_CONF = re.compile(r"(?:^|/)\.?nccl\.conf$")
_HEREDOC = re.compile(r"<<-?[\"']?(\w+)[\"']?")


def read(text: str, label: str) -> SettingsFile:
    """What an image sets; each stage that starts with FROM is an environment of its own."""
    out = SettingsFile.empty(label, KIND)
    stage = 0
    for instruction, body, line in _instructions(text):
        ref = Ref(label, f"line {line}", body.split("\n")[0].strip()[:QUOTE_LIMIT])
        if instruction == "FROM":
            stage += 1
        elif instruction == "ENV":
            _env(out, body, line, f"{label}:stage{stage}")
        elif instruction in {"COPY", "ADD"}:
            target = plain(body.split()[-1]) if body.split() else ""
            carried = [w for w in body.split() if _CONF.search(plain(w))]
            if carried:
                out.baked.append(Baked(target if _CONF.search(target) else carried[0], ref))
        elif instruction in {"RUN", "CMD", "ENTRYPOINT"}:
            _run(out, instruction, body, line, f"{label}:stage{stage}")
    return out


def _instructions(text: str) -> Iterator[tuple[str, str, int]]:
    """Each instruction with its whole body (continued lines and here-documents joined) and its first line."""
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        start, line = index, lines[index]
        index += 1
        match = re.match(r"\s*([A-Za-z]+)\s+(.*)", line)
        if not match or line.lstrip().startswith("#"):
            continue
        body = [match[2]]
        while index < len(lines) and (body[-1].rstrip().endswith("\\") or lines[index - 1].lstrip().startswith("#")):
            body.append(lines[index])
            index += 1
        if mark := _HEREDOC.search(match[2]):
            while index < len(lines) and lines[index].strip() != mark[1]:
                body.append(lines[index])
                index += 1
        # A comment line inside a continued instruction is skipped by Docker; keep the count of lines.
        kept = ["\\" if part.lstrip().startswith("#") and len(body) > 1 and n else part for n, part in enumerate(body)]
        yield match[1].upper(), "\n".join(kept), start + 1


def _env(out: SettingsFile, body: str, line: int, scope: str) -> None:
    words = [word for command in commands(body, line) for word in getattr(command, "words", [])]
    quotes = body.split("\n")

    def place(word: Word) -> Ref:
        return Ref(
            out.label,
            f"line {word.line}",
            quotes[min(word.line - line, len(quotes) - 1)].strip()[:QUOTE_LIMIT],
        )

    if words and "=" not in words[0].raw:  # the old form: ENV NAME the rest is the value
        value = " ".join(plain(word.raw) for word in words[1:])
        out.assignments.append(
            Assignment(words[0].raw, None if "$" in value else value, place(words[0]), scope, "image")
        )
        return
    for word in words:
        name, equals, value = word.raw.partition("=")
        if equals:
            out.assignments.append(Assignment(name, literal(value), place(word), scope, "image"))


def _run(out: SettingsFile, instruction: str, body: str, line: int, scope: str) -> None:
    if body.lstrip().startswith("["):
        return
    inner = shell.read(body, out.label, line)
    out.baked += inner.baked
    for a in inner.assignments:
        how = "build" if instruction == "RUN" and a.how != "conf" else a.how
        out.assignments.append(Assignment(a.name, a.value, a.ref, scope, how, a.used, a.sure))
        if how == "build" and a.how == "export" and a.name in catalogue() and _plainly_exported(a.ref.quote):
            why = "an export in RUN ends with that step: the image does not carry it"
            out.lost.append(Lost(a.name, a.ref, why, f"Write: ENV {a.name}={a.value or '…'}"))


def _plainly_exported(quote: str) -> bool:
    return bool(re.search(r"\bexport\b", quote))

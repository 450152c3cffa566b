"""Dockerfiles: variables that an image carries, files that it bakes in, and exports that it loses.

Only the last stage and those that it is built from make the image; what other stages set ends with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from whichrank.facts.variables.environment import catalogue, is_read
from whichrank.facts.variables.releases import Release, release_in
from whichrank.model.evidence import Ref
from whichrank.records.settings import UNKNOWN, Assignment, Baked, Lost, SettingsFile
from whichrank.source.alternatives.in_scripts import is_measurement
from whichrank.source.places import left_as_text
from whichrank.source.shell.embedded import IN_BRACKETS, Given, run_command, run_script
from whichrank.source.shell.tokens import split_words
from whichrank.source.shell.words import Value, expand

KIND = "dockerfile"
QUOTE_LIMIT = 300
_CONF = re.compile(r"(?:^|/)\.?nccl\.conf$")
_HEREDOC = re.compile(r"<<-?[\"']?(\w+)[\"']?")
_JSON_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


class _Stage(Struct):
    name: str
    parent: str
    instructions: list[tuple[str, str, int]] = field(default_factory=list)


def read(text: str, label: str) -> SettingsFile:
    """What the image that the file builds sets."""
    out = SettingsFile.empty(label, KIND)
    reader = _Image(out, text.split("\n"))
    stages: list[_Stage] = []
    for instruction, body, line in _instructions(text):
        if instruction == "FROM":
            words = [w for w in body.split() if not w.startswith("--")]
            name = words[2] if len(words) > 2 and words[1].upper() == "AS" else str(len(stages))
            stages.append(_Stage(name.lower(), reader.filled(words[0]).lower() if words else ""))
            reader.pin(reader.filled(words[0]) if words else "", len(stages) - 1)
        elif not stages and instruction == "ARG":
            reader.argument(body, line, before=True)
        elif not stages:
            stages.append(_Stage("0", ""))
        if stages and instruction != "FROM":
            stages[-1].instructions.append((instruction, body, line))
    built = _built(stages)
    for index in built:
        reader.stage(stages[index], index)
    reader.copied_packages(stages, built)
    reader.arguments_only()
    reader.other_stages(stages, built)
    return out


def _built(stages: list[_Stage]) -> list[int]:
    """The last stage and its ancestors, oldest first."""
    order: list[int] = []
    index = len(stages) - 1
    while index >= 0 and index not in order:
        order.insert(0, index)
        parent = stages[index].parent
        index = next((i for i in range(index - 1, -1, -1) if stages[i].name == parent), -1)
    return order


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
        if (mark := _HEREDOC.search(match[2])) and match[1].upper() in {"RUN", "COPY", "ADD"}:
            while index < len(lines) and lines[index].strip() != mark[1]:
                body.append(lines[index])
                index += 1
            if index < len(lines):
                body.append(lines[index])
                index += 1
        # A comment line inside a continued instruction is skipped by Docker; keep the count of lines.
        kept = ["\\" if part.lstrip().startswith("#") and len(body) > 1 and n else part for n, part in enumerate(body)]
        yield match[1].upper(), "\n".join(kept), start + 1


class _Image(Struct):
    out: SettingsFile
    lines: list[str]
    arguments: dict[str, tuple[str, int]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)
    releases: dict[int, Release] = field(default_factory=dict)
    carried: list[Given] = field(default_factory=list)

    @property
    def scope(self) -> str:
        return f"{self.out.label}:image"

    def ref(self, line: int) -> Ref:
        quote = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return Ref(self.out.label, f"line {line}", quote[:QUOTE_LIMIT])

    def filled(self, text: str) -> str:
        made = expand(text, self.lookup)
        return made.text

    def lookup(self, name: str) -> Value | None:
        self.used.add(name)
        text = self.values.get(name)
        return None if text is None else Value(text)

    def pin(self, text: str, index: int) -> None:
        self.releases[index] = release_in(text)

    def stage(self, stage: _Stage, index: int) -> None:
        release = self.releases.get(index, Release())
        for instruction, body, line in stage.instructions:
            if instruction == "ARG":
                self.argument(body, line)
            elif instruction == "ENV":
                self.env(body, line)
            elif instruction in {"COPY", "ADD"}:
                self.copied(body, line)
            elif instruction == "RUN":
                release |= release_in(re.sub(r"\\\n", " ", body))
                self.run(body, line)
            elif instruction in {"CMD", "ENTRYPOINT"}:
                self.started(body, line)
        self.out.torch = release.torch or self.out.torch
        self.out.nccl = release.nccl or self.out.nccl

    def argument(self, body: str, line: int, *, before: bool = False) -> None:
        for word in split_words(body, line):
            name, equals, value = word.raw.partition("=")
            if equals:
                self.values[name] = expand(value, self.lookup).text
            if not before:
                self.arguments[name] = (self.values.get(name, ""), word.line)

    def arguments_only(self) -> None:
        carried = {a.name for a in self.out.assignments if a.how == "image"}
        for name, (_, line) in self.arguments.items():
            if name in catalogue() and name not in carried and name not in self.used:
                why = "an ARG exists only while the image is built"
                self.out.lost.append(Lost(name, self.ref(line), why, f"Write: ENV {name}=…"))

    def other_stages(self, stages: list[_Stage], built: list[int]) -> None:
        """What a stage that the image only copies files from sets, and the image itself does not."""
        rows = [(name, body) for index in built for name, body, _ in stages[index].instructions]
        program = " ".join(body for name, body in rows if name in {"ENTRYPOINT", "CMD"})
        copies = _copies(body for name, body in rows if name == "COPY")
        carried = {a.name for a in self.out.assignments}
        for index, stage in enumerate(stages):
            taken = [*copies.get(stage.name, ()), *copies.get(str(index), ())]
            if index in built or not any(_trains(stage.name, body, program) for body in taken):
                continue
            inner = _Image(SettingsFile.empty(self.out.label, KIND), self.lines)
            for instruction, body, line in stage.instructions:
                if instruction == "ENV":
                    inner.env(body, line)
            told = {a.name: a.value for a in inner.out.assignments}
            if told.get("WORLD_SIZE") == "1":
                continue  # for a program of one process that runs while the image is built
            for a in inner.out.assignments:
                if a.name in catalogue() and a.name not in carried:
                    why = f"stage '{stage.name}' sets it, and the final image takes only files from that stage"
                    self.out.lost.append(Lost(a.name, a.ref, why, f"Write ENV {a.name}=… in the last stage."))

    def copied_packages(self, stages: list[_Stage], built: list[int]) -> None:
        """Versions of what a stage installs, where the image takes its Python packages from there."""
        copies = _copies(body for index in built for name, body, _ in stages[index].instructions if name == "COPY")
        for index, stage in enumerate(stages):
            taken = [*copies.get(stage.name, ()), *copies.get(str(index), ())]
            if index in built or not any(_PACKAGES.search(body) for body in taken):
                continue
            for name, body, _ in stage.instructions:
                found = release_in(re.sub(r"\\\n", " ", body)) if name == "RUN" else Release()
                self.out.torch, self.out.nccl = self.out.torch or found.torch, self.out.nccl or found.nccl

    def env(self, body: str, line: int) -> None:
        words = split_words(re.sub(r"(?m)(?<!\S)#", r"\\#", body), line)
        if words and "=" not in words[0].raw:  # the old form: ENV NAME the rest is the value
            text = " ".join(expand(word.raw, self.lookup).text for word in words[1:])
            self.set(words[0].raw, text, words[0].line)
            return
        for word in words:
            name, equals, value = word.raw.partition("=")
            if equals:
                self.set(name, expand(value, self.lookup).text, word.line)
                if found := left_as_text.lost(name, word.raw, self.ref(word.line), "docker"):
                    self.out.lost.append(found)
            elif word.raw.startswith("\\#") and is_read(words[0].raw.partition("=")[0]):
                why = "a comment behind ENV is not a comment: docker refuses the line"
                first = words[0].raw.partition("=")[0]
                self.out.lost.append(Lost(first, self.ref(word.line), why, "Put it on a line of its own.", "error"))
                return

    def set(self, name: str, text: str, line: int) -> None:
        self.values[name] = text
        known = None if UNKNOWN in text else text
        # A later ENV of the same name replaces this one in the image.
        self.out.assignments[:] = [a for a in self.out.assignments if a.name != name or a.how != "image"]
        self.out.assignments.append(
            Assignment(name, known, self.ref(line), self.scope, "image", partial="" if known is not None else text)
        )
        self.carried = [g for g in self.carried if g.name != name] + [Given(name, text, line)]

    def copied(self, body: str, line: int) -> None:
        first, _, rest = body.partition("\n")
        words = [w for w in first.split() if not w.startswith("--")]
        target = words[-1] if words else ""
        carried = [w for w in words if _CONF.search(w)]
        if carried and "<<" not in first:
            self.out.baked.append(Baked(target if _CONF.search(target) else carried[0], self.ref(line)))
        if "<<" in first and _CONF.search(target):
            for offset, row in enumerate(rest.split("\n"), 1):
                name, equals, value = row.strip().partition("=")
                if equals:
                    self.out.assignments.append(Assignment(name, value, self.ref(line + offset), self.scope, "conf"))

    def run(self, body: str, line: int) -> None:
        body = re.sub(r"^(?:--\S+\s+)+", "", body)
        if body.lstrip().startswith("["):
            return
        inner = run_script(_script(body), self.out.label, line, self.lines)
        written = any(a.how == "conf" for a in inner.assignments)
        self.out.baked += [] if written else inner.baked  # what is written out here is judged by itself
        for a in inner.assignments:
            written = a.how == "conf" or not re.search(r"\bexport\b|^RUN\b.*\bexport\b", a.ref.quote)
            profile = re.search(
                r">>?\s*\S*(?:bashrc|\.profile|bash_profile|profile\.d/|/etc/profile|/etc/environment)", a.ref.quote
            )
            judged = is_read(a.name)
            if profile and judged:
                why = "only interactive and login shells read that file, not the program that a container starts"
                self.out.lost.append(Lost(a.name, a.ref, why, f"Write: ENV {a.name}={a.value or '…'}"))
            elif not written and a.how == "export" and judged:
                why = "an export in RUN ends with that step: the image does not carry it"
                self.out.lost.append(Lost(a.name, a.ref, why, f"Write: ENV {a.name}={a.value or '…'}"))
            how = a.how if a.how == "conf" else "build"
            self.out.assignments.append(a._replace(scope=self.scope, how=how))

    def started(self, body: str, line: int) -> None:
        if body.lstrip().startswith("["):
            words = [
                (m[1].replace('\\"', '"'), m[1], line + body.count("\n", 0, m.start()))
                for m in _JSON_WORD.finditer(body)
            ]
            found = run_command(words, self.out.label, self.lines, list(self.carried), literal=IN_BRACKETS)
        else:
            found = run_script(body, self.out.label, line, self.lines, list(self.carried))
        self.out.assignments += [a._replace(scope=self.scope) for a in found.assignments]
        self.out.lost += found.lost
        self.out.clashes += found.clashes
        self.out.launches += found.launches


_PACKAGES = re.compile(r"venv|virtualenv|(?:site|dist)-packages|conda|/\.local\b|/install\b|/wheels\b|/usr/local\b")


def _copies(bodies: Iterable[str]) -> dict[str, list[str]]:
    """COPY instructions by the stage that they take files from."""
    found: dict[str, list[str]] = {}
    for body in bodies:
        if (source := re.search(r"--from=(\S+)", body)) is not None:
            found.setdefault(source[1].lower(), []).append(body)
    return found


_TOOLS = re.compile(r"(?:^|[-_.])(?:tests?|testing|tools?|utils?|ci|lint|debug|perf|bench\w{0,12}|docs?)(?:[-_.\d]|$)")
_OF_THE_SYSTEM = re.compile(r"(?:/usr(?:/local)?)?/(?:s?bin|lib(?:64)?|include)(?:/|$)|/etc/")


def _trains(stage: str, copy: str, program: str) -> bool:
    """What is copied from a stage may be what trains: the program that the image starts, or what that needs.

    A tool beside it, or one file for the folders of the system, has the settings of its own stage for itself."""
    *sources, target = [word for word in copy.split() if not word.startswith("--")] or [""]
    if any((name := source.rstrip("/").rsplit("/", 1)[-1]) and name in program for source in sources):
        return True
    tool = _TOOLS.search(stage) or is_measurement(sources)
    return not tool and not _OF_THE_SYSTEM.match(target)


def _script(body: str) -> str:
    """The script of `RUN <<EOF`, or of a plain RUN."""
    if mark := re.match(r"\s*<<-?[\"']?(\w+)[\"']?\s*\n", body):
        inner = body[mark.end() :]
        return "\n" + re.sub(rf"^{mark[1]}\s*$", "", inner, flags=re.MULTILINE)
    return body

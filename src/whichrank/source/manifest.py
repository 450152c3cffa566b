"""Kubernetes manifests and other YAML: lists and maps of variables, and scripts inside block scalars.

Read line by line instead of by a YAML parser: lines are what findings point at, templates ({{ … }}) are no
YAML, and no document can make the reader expand aliases.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from whichrank.facts.environment import catalogue, in_family
from whichrank.model.evidence import Ref
from whichrank.records.settings import Assignment, Lost, SettingsFile
from whichrank.source import shell

KIND = "manifest"
QUOTE_LIMIT = 300

_KEY = re.compile(r"(?P<indent>[ ]*)(?P<dash>-[ ]+)?(?P<key>[\"']?[\w./-]+[\"']?):(?:[ \t]+(?P<value>.*)|[ \t]*$)")
_ITEM = re.compile(r"[ ]*-[ ]+[\"']?([A-Za-z_]\w*)=(.*?)[\"']?[ \t]*$")
_FLOW = re.compile(r"\{[^{}\n]*\}")
_FLOW_NAME = re.compile(r"\bname[\"']?:\s*([^,{}\n]+)")
_FLOW_VALUE = re.compile(r"\bvalue[\"']?:\s*(\"[^\"\n]*\"|'[^'\n]*'|[^,{}\n]+)")
_BLOCK = re.compile(r"[|>][-+0-9]*[ \t]*(?:#.*)?$")
_BARE = re.compile(r"[-+]?\d+(?:\.\d+)?|0x[0-9a-fA-F]+|true|false|yes|no|on|off|null|~", re.IGNORECASE)
_DASH_BLOCK = re.compile(r"([ ]*)-[ ]+[|>][-+0-9]*[ \t]*(?:#.*)?$")
_SCRIPT_ITEM = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'([^'\n]*)'")


def read(text: str, label: str) -> SettingsFile:
    """What a manifest sets; every block of variables is an environment of its own."""
    reader = _Manifest(SettingsFile.empty(label, KIND), text.split("\n"))
    reader.kubernetes = bool(re.search(r"^apiVersion:", text, re.MULTILINE)) and "{{" not in text
    reader.walk()
    return reader.out


@dataclass(slots=True)
class _Manifest:
    out: SettingsFile
    lines: list[str]
    kubernetes: bool = False
    scope: str = ""
    names: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Column of a list item's keys -> its name, until the item ends."""
    values: dict[int, tuple[str, int]] = field(default_factory=dict)

    def walk(self) -> None:
        self.scope = self.out.label
        number = 0
        while number < len(self.lines):
            line = self.lines[number]
            number += 1
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if line.startswith("---"):
                self.names.clear()
                self.scope = f"{self.out.label}:{number}"
            match = _KEY.match(line)
            if match and _BLOCK.match(match["value"] or ""):
                number = self.script(number, len(match["indent"]))
            elif dash := _DASH_BLOCK.match(line):
                number = self.script(number, len(dash[1]))
            elif match:
                self.pair(match, number)
            elif item := _ITEM.match(line):
                self.set(item[1], item[2], number)
            if "{" in line and "name" in line:
                self.flow(line, number)
            elif "export " in line and not (match and match["key"] == "name"):
                self.inline_script(line, number)

    def ref(self, number: int) -> Ref:
        return Ref(self.out.label, f"line {number}", self.lines[number - 1].strip()[:QUOTE_LIMIT])

    def set(self, name: str, raw: str, number: int, value_line: int | None = None) -> None:
        value = _scalar(raw)
        where = self.ref(value_line) if value_line and value_line != number else None
        dynamic = value is None or "{{" in value or "$(" in value or "${" in value
        self.out.assignments.append(
            Assignment(name, None if dynamic else value, self.ref(number), self.scope, "manifest", value_ref=where)
        )

    def pair(self, match: re.Match[str], number: int) -> None:
        key, raw = match["key"].strip("\"'"), (match["value"] or "").strip()
        column = len(match["indent"]) + len(match["dash"] or "")
        if match["dash"]:
            self.names.pop(column, None)
            self.values.pop(column, None)
        if key in {"env", "environment", "envs", "env_vars", "envVars"}:
            self.scope = f"{self.out.label}:{number}"
        elif key == "name" and raw:
            self.names[column] = (_scalar(raw) or "", number)
            if column in self.values:
                self.named_value(column, *self.values.pop(column))
        elif key == "value":
            if column in self.names:
                self.named_value(column, raw, number)
            else:
                self.values[column] = (raw, number)
        elif (
            _uncommented(raw) not in {"", "null", "~", "Null", "NULL"}
            and re.fullmatch(r"[A-Z][A-Z0-9_]*", key)
            and (in_family(key) or key in catalogue())
        ):
            self.set(key, raw, number)

    def named_value(self, column: int, raw: str, number: int) -> None:
        name, line = self.names.pop(column)
        self.set(name, raw, line, number)
        if self.kubernetes and _BARE.fullmatch(_uncommented(raw)):
            why = "Kubernetes takes strings only as values of variables, and refuses a bare number or boolean"
            fix = f'Quote it: value: "{_uncommented(raw)}"'
            self.out.lost.append(Lost(name, self.ref(number), why, fix, "error"))

    def flow(self, line: str, number: int) -> None:
        for found in _FLOW.finditer(line):
            name, value = _FLOW_NAME.search(found.group()), _FLOW_VALUE.search(found.group())
            if name and value:
                self.set(_scalar(name[1]) or "", value[1], number)

    def script(self, number: int, indent: int) -> int:
        """A block scalar: everything that is indented further. Returns the number of the line after it."""
        start = number
        while number < len(self.lines):
            line = self.lines[number]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            number += 1
        self.shell("\n".join(self.lines[start:number]), start + 1)
        return number

    def inline_script(self, line: str, number: int) -> None:
        quoted = [m[1] or m[2] or "" for m in _SCRIPT_ITEM.finditer(line)]
        scripts = [text for text in quoted if "export " in text]
        if not scripts and (match := _KEY.match(line)):
            scripts = [match["value"] or ""]
        for text in scripts or [line.strip().removeprefix("- ")]:
            self.shell(text, number)

    def shell(self, text: str, first_line: int) -> None:
        if "=" not in text:
            return
        inner = shell.read(text, self.out.label, first_line)
        self.out.assignments += [
            Assignment(a.name, a.value, a.ref, self.scope, a.how, a.used, a.sure) for a in inner.assignments
        ]
        self.out.late += inner.late
        self.out.lost += inner.lost
        self.out.baked += inner.baked


def _uncommented(raw: str) -> str:
    if raw[:1] in {'"', "'"}:
        return raw
    return re.split(r"[ \t]#", raw, maxsplit=1)[0].strip()


def _scalar(raw: str) -> str | None:
    """The string of a scalar; None for anchors, aliases, tags and nested collections."""
    raw = _uncommented(raw.strip())
    if raw[:1] in {'"', "'"}:
        end = raw.find(raw[0], 1)
        return raw[1:end] if end > 0 else None
    return None if raw[:1] in {"&", "*", "!", "{", "["} else raw

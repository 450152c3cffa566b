"""Values of variables in pods and compose files that refer to others: what is filled in, and what stays as it is.

Kubernetes replaces `$(NAME)` by an earlier entry of the same list (or one of envFrom) and nothing else; compose
replaces `$NAME` by what its own shell or .env file has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from whichrank.facts.variables.environment import catalogue, others
from whichrank.records.settings import Lost
from whichrank.source.formats.yaml_tree import Node
from whichrank.source.shell.embedded import OF_LAUNCHERS

if TYPE_CHECKING:
    from whichrank.source.formats.manifest import Manifest

_REFERENCE = re.compile(r"(?<!\$)\$\(([^)\n]{1,200})\)")
_SHELL = re.compile(r"(?<!\$)\$(?:\{(\w{1,80})(?::?[-=?+][^{}]{0,200})?\}|([A-Za-z_]\w{0,80}))")
_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
# Variables of the image or of the shell, which Kubernetes does not know.
_OF_IMAGES = frozenset({"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME", "PWD", "USER", "HOSTNAME", "hostname"})
_FILLED_IN = "Kubernetes replaces $(NAME) by an earlier entry of the list, and leaves other text as it is"


def check(manifest: Manifest, block: Node) -> None:
    """References in one list or map of variables that don't become what they say."""
    entries = list(_entries(block))
    places = {name: at for at, (name, _) in reversed(list(enumerate(entries)))}
    for at, (name, value) in enumerate(entries):
        why = ""
        if value is not None and manifest.form == "kubernetes":
            why = _in_pod(name, value.text, at, places)
        elif value is not None and manifest.form == "compose":
            why = _in_compose(name, value.text, places)
        if value is not None and why:
            fix = _FIX[manifest.form]
            lost = Lost(name, manifest.ref(value.line), why, fix)
            if lost not in manifest.out.lost:
                manifest.out.lost.append(lost)


_FIX = {
    "kubernetes": "Write $(NAME) of an entry that stands before this one, or set it in the command: sh -c 'export …'.",
    "compose": "Write the value itself, or set it in the command: sh -c 'export …' with $$.",
}


def _entries(block: Node) -> Iterator[tuple[str, Node | None]]:
    for key, value in block.entries():
        yield key.text, value if value.kind == "scalar" else None
    for item in block.items:
        name, given = item.get("name"), item.get("value")
        if item.kind == "scalar":
            left, _, right = item.text.partition("=")
            yield left, Node("scalar", item.line, right, "'")
        elif name is not None:
            yield name.text, given if given is not None and given.kind == "scalar" else None


def _in_pod(own: str, text: str, at: int, places: Mapping[str, int]) -> str:
    for match in _REFERENCE.finditer(text):
        name = match[1]
        if not _NAME.fullmatch(name):
            return f"{_FILLED_IN}: no shell runs {match.group()}"
        if places.get(name, -1) > at:
            return f"{_FILLED_IN}: {name} is set below this line, so {match.group()} stays text"
        if (name not in places and name in _OF_IMAGES) or (name == own and places[own] == at):
            return f"{_FILLED_IN}: {name} is a variable of the image, so {match.group()} stays text"
    for match in _SHELL.finditer(text):
        name = match[1] or match[2]
        known = name in places and name != own  # `HF_TOKEN: ${HF_TOKEN}` is for a tool that fills in the file first
        if known or name in _OF_IMAGES or OF_LAUNCHERS.fullmatch(name):
            return f"{_FILLED_IN}: {match.group()} is a shell's notation"
    return ""


def _in_compose(own: str, text: str, places: Mapping[str, int]) -> str:
    if match := _REFERENCE.search(text):
        return f"compose runs no commands in values, and refuses {match.group()}"
    for match in _SHELL.finditer(text):
        name = match[1] or match[2]
        if name in places and name != own and match.group() in {f"${name}", f"${{{name}}}"}:
            return f"compose fills in {match.group()} from its own shell or .env file, not from the other entries"
    return ""


_TEMPLATED = re.compile(
    r"(?<![A-Za-z0-9_])(?:value|[A-Z][A-Z0-9_]{0,80}):\s{0,8}\{\{-?([^{}\n]{0,300})\}\}\s{0,8}(?:#[^\n]{0,400})?$"
)
_QUOTED = re.compile(
    r"\b(?:quote|squote|toJson|toRawJson)\s*\)?$|^(?:include|template|tpl|printf|join|cat|range|if|end)\b"
)
_NUMERIC = frozenset({"nccl_int", "nccl_warps", "torch_int", "torch_bool", "python_int", "flag01", "range", "port"})


def bare_in_template(manifest: Manifest, name: str, value: Node) -> None:
    """`value: {{ .Values.n }}` of Helm without `| quote`: a number or a truth value arrives bare."""
    row = manifest.lines[value.line - 1] if value.line <= len(manifest.lines) else ""
    match = _TEMPLATED.search(row)
    if match is None or value.style or _QUOTED.search(_inside(match)):
        return
    variable = catalogue().get(name) or others().get(name)
    number = re.search(r"\bdefault\s+(?:-?\d+(?:\.\d+)?|true|false)\s*(?:\||$)", _inside(match))
    if number or (variable is not None and variable.parser in _NUMERIC) or name == "OMP_NUM_THREADS":
        why = "the template puts in a bare number or boolean, and Kubernetes takes strings only"
        manifest.out.lost.append(
            Lost(name, manifest.ref(value.line), why, f"Write: {{{{ {_inside(match)} | quote }}}}", "error")
        )


_DEFAULT = re.compile(
    r"(?:^|\|\s{0,8})default\s{1,8}(?:\"([^\"]{0,200})\"|(-?\d{1,18}|true|false))(?=\s{0,8}\||\s{0,8}$|\s\.)"
)


def default_in_template(row: str) -> str | None:
    """`{{ .Values.level | default "PHB" | quote }}`: the value unless somebody gives another one."""
    match = _TEMPLATED.search(row[:2_000])
    found = _DEFAULT.search(_inside(match)) if match is not None else None
    return None if found is None else found[1] if found[1] is not None else found[2]


def _inside(match: re.Match[str]) -> str:
    """What stands between the braces."""
    return match[1].rstrip("-").strip()

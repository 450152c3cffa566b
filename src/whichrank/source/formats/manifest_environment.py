"""Variables of manifests: blocks that are called an environment, and lists of name and value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from whichrank.facts.variables.environment import is_read
from whichrank.records.settings import UNKNOWN, Assignment
from whichrank.source.formats import manifest_keys, pod_variables
from whichrank.source.formats.yaml_tree import TEMPLATE, Node
from whichrank.source.places import left_as_text
from whichrank.source.shell.embedded import Given

if TYPE_CHECKING:
    from whichrank.source.formats.manifest import Manifest


def given_to_scripts(node: Node) -> list[Given]:
    """Variables that the scripts of the same block see."""
    parts = [node, *(value for key, value in node.entries() if key.text == "runtime_env")]
    blocks = [v for part in parts for k, v in part.entries() if manifest_keys.ENVIRONMENT.fullmatch(k.text)]
    pairs = [(k, v.text, v.kind) for block in blocks[:4] for k, v in islice(block.entries(), 200)]
    pairs += [(i, i.text.partition("=")[2], i.kind) for block in blocks[:4] for i in block.items[:200]]
    return [
        Given(key.text.partition("=")[0], text.replace(TEMPLATE, UNKNOWN), key.line)
        for key, text, kind in pairs
        if kind == "scalar"
    ]


def sets_something(node: Node) -> bool:
    if node.kind == "map":
        return any(value.kind == "scalar" for _, value in node.entries()) or node.get("<<") is not None
    return any(item.kind == "map" or "=" in item.text or manifest_keys.is_setting(item.text) for item in node.items)


def block(manifest: Manifest, node: Node, scope: str, *, judged: bool = True) -> list[Given]:
    found: dict[str, tuple[Node, int]] = {}
    pod_variables.check(manifest, node)
    if node.kind == "map":
        for key, value in node.entries():
            manifest.budget -= 1
            if manifest.budget < 0:
                break
            if value.kind == "scalar":
                found[key.text] = (value, key.line)
                _check_type(manifest, key.text, value)
            elif _is_no_text(manifest, key.text, value):
                continue
            else:
                manifest.entry(key.text, key, value, scope, ("", "", key.text), 1)
    for item in node.items:
        _listed(manifest, item, found)
    given, own, drawn = [], _of_the_pod(node, _ADDRESSES), _of_the_pod(node, _IDENTITY)
    for name, (value, line) in found.items():
        if value.null and node.kind == "map":
            continue
        text = record(manifest, name, value, line, scope) if judged else value.text
        refers = {match[1] for match in _REFERENCE.finditer(value.text)}
        given.append(Given(name, text, line, own=not refers.isdisjoint(own), drawn=not refers.isdisjoint(drawn)))
    given += [Given(name, UNKNOWN, line, own=True) for name, line in own.items() if name not in found]
    given += [Given(name, UNKNOWN, line, drawn=True) for name, line in drawn.items() if name not in found]
    told = found.keys() | own.keys() | drawn.keys()
    return [*given, *(Given(name, UNKNOWN, line) for name, line in _filled_in(node) if name not in told)]


def _filled_in(block: Node) -> Iterator[tuple[str, int]]:
    """Names of a list whose values come from elsewhere: the fields of the pod, a ConfigMap, a secret."""
    for item in block.items:
        name = item.get("name")
        if name is not None and item.get("valueFrom") is not None:
            yield name.text, name.line


_REFERENCE = re.compile(r"(?<!\$)\$\(([A-Za-z_]\w{0,80})\)")
_ADDRESSES = frozenset({"status.podIP", "status.podIPs", "status.hostIP", "metadata.name", "spec.nodeName"})
_IDENTITY = frozenset({"metadata.uid"})


def _of_the_pod(block: Node, fields: frozenset[str]) -> dict[str, int]:
    """Variables that hold one of these fields of the pod itself, with their lines."""
    found = {}
    for item in block.items:
        name, source = item.get("name"), item.get("valueFrom")
        field = source.get("fieldRef") if source is not None else None
        path = field.get("fieldPath") if field is not None else None
        if name is not None and path is not None and path.text in fields:
            found[name.text] = name.line
    return found


def _written(manifest: Manifest, item: Node, found: dict[str, tuple[Node, int]]) -> None:
    """`- NAME=VALUE`."""
    name, equals, value = item.text.partition("=")
    told = re.fullmatch(r"([A-Z][A-Z0-9_]{2,80}):\s{1,8}(\S.{0,300})", item.text)
    if told and is_read(told[1]):
        why = f"the whole text '{item.text}' is taken for the name of a variable"
        manifest.lost(told[1], item.line, why, f"Write: - {told[1]}={told[2]}", error=True)
    if equals and re.fullmatch(r"\s*[A-Za-z_]\w*\s*", name):
        found[name.strip()] = (Node("scalar", item.line, value, "'"), item.line)
        quoted = len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]
        if quoted and manifest.form in {"compose", ""}:
            why = f"the quotes inside the item are part of the value: {value}"
            manifest.lost(name.strip(), item.line, why, f"Write: - {name.strip()}={value[1:-1]}")


def _listed(manifest: Manifest, item: Node, found: dict[str, tuple[Node, int]]) -> None:
    """`- NAME=VALUE`, or `- name: NAME` with `value:`."""
    if item.kind == "scalar":
        _written(manifest, item, found)
        return
    if item.kind != "map":
        return
    name_node, value_node = item.get("name", "Name", "key"), item.get("value", "Value")
    if name_node is None and manifest.form == "compose":
        for key, given in item.entries():
            why = "compose takes NAME=VALUE in a list, and refuses a mapping"
            manifest.lost(key.text, key.line, why, f"Write: - {key.text}={given.text}", error=True)
    if name_node is not None and value_node is not None and _is_no_text(manifest, name_node.text, value_node):
        return
    if name_node is None or value_node is None or value_node.kind != "scalar":
        return
    name = name_node.text
    who = "ECS" if manifest.root.get("containerDefinitions") is not None else _TEXTS_ONLY["kubernetes"]
    if (manifest.form == "kubernetes" or who == "ECS") and value_node.bare:
        why = f"{who} takes strings only as values of variables, and refuses a bare number or boolean"
        manifest.lost(name, value_node.line, why, f'Quote it: value: "{value_node.text}"', error=True)
    if manifest.form == "kubernetes" and manifest.templated:
        pod_variables.bare_in_template(manifest, name, value_node)
    if name in found and found[name][0].text != value_node.text:
        why = f"it is set twice: '{found[name][0].text}' (line {found[name][1]}) is overwritten"
        manifest.lost(name, name_node.line, why, "Keep one of the two.")
    found[name] = (value_node, name_node.line)


_TEXTS_ONLY = {
    "kubernetes": "Kubernetes",
    "compose": "compose",
    "ray": "Ray",
    "sky": "SkyPilot",
    "github": "the runner",
}


def _is_no_text(manifest: Manifest, name: str, value: Node) -> bool:
    """A list or a map as the value of a variable, which is refused."""
    who = _TEXTS_ONLY.get(manifest.form, "")
    if value.kind not in {"list", "map"} or not who or not is_read(name):
        return False
    why = (
        f"{who} takes texts only as values of variables, and refuses a {'list' if value.kind == 'list' else 'mapping'}"
    )
    whole = ",".join(item.text for item in value.items if item.kind == "scalar")
    fix = f'Write one text: "{whole}".' if whole else "Write one text."
    manifest.lost(name, value.line, why, fix, error=True)
    return True


def _check_type(manifest: Manifest, name: str, value: Node) -> None:
    boolean = value.bare and value.text.lower() in {"true", "false", "yes", "no", "on", "off"}
    if manifest.form == "compose" and value.bare and value.text.lower() in {"true", "false"}:
        why = "compose refuses a bare boolean as the value of a variable"
        manifest.lost(name, value.line, why, f'Quote it: {name}: "{value.text}"', error=True)
    elif manifest.form == "ray" and value.null:
        manifest.lost(
            name, value.line, "Ray takes strings only in env_vars, and refuses null", "Leave it out.", error=True
        )
    elif manifest.form == "ray" and value.bare:
        why = "Ray takes strings only in env_vars, and refuses the job"
        manifest.lost(name, value.line, why, f'Quote it: {name}: "{value.text}"', error=True)
    elif boolean and manifest.form == "sky":
        manifest.lost(name, value.line, f"YAML reads {value.text} as a boolean: the variable becomes 'True' or 'False'",
                  'Write "1" or "0".')  # fmt: skip


# Forms of manifests whose variables no shell reads.
_LITERAL = {
    "kubernetes": "Kubernetes", "compose": "compose", "ray": "Ray", "github": "the runner", "": "what reads this file",
}  # fmt: skip


def record(manifest: Manifest, name: str, value: Node, line: int, scope: str) -> str:
    """Record one variable; returns its text with UNKNOWN for what is not known."""
    text = value.text.replace(TEMPLATE, UNKNOWN)
    who = _LITERAL.get(manifest.form)
    found = left_as_text.lost(name, text, manifest.ref(value.line), who) if who is not None else None
    if found is not None and all(found.ref != other.ref for other in manifest.out.lost):
        manifest.out.lost.append(found)
    text = re.sub(r"\$\([^)]*\)|\$\{[^}]*\}|(?<!\$)\$[A-Za-z_]\w*", _default, text)
    if manifest.form == "compose":
        text = text.replace("$$", "$")
    if value.bare and value.text.lower() in {"true", "false"} and manifest.form != "compose":
        text = value.text
    where = manifest.ref(value.line) if value.line != line else None
    known = None if UNKNOWN in text else text
    usual = None
    if value.text and not value.text.strip(TEMPLATE) and value.line <= len(manifest.lines):
        usual = pod_variables.default_in_template(manifest.lines[value.line - 1])
    if manifest.form == "no-environment":
        manifest.lost(name, line, "nothing exports it: this configuration has no section for environment variables",
                  f"Export {name} where the job is launched.")  # fmt: skip
    manifest.out.assignments.append(
        Assignment(
            name,
            known if usual is None else usual,
            manifest.ref(line),
            scope,
            "manifest",
            sure=usual is None,
            value_ref=where,
            partial="" if known else text,
            way=manifest.way,
            asked=manifest.asked,
        )
    )
    return text


def _default(match: re.Match[str]) -> str:
    """`${X:-value}` is the value, as far as the file says."""
    inner = re.fullmatch(r"\$\{\w+:?-([^${}]*)\}", match.group())
    return inner[1] if inner else UNKNOWN

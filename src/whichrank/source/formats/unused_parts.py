"""Parts of a manifest that hold settings and that no rank takes: ConfigMaps that no container names, blocks of compose
whose anchor is not used, pods without GPUs beside those that train."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.facts.variables.environment import counts
from whichrank.model.evidence import Ref
from whichrank.records.settings import Lost, SettingsFile
from whichrank.source import workload
from whichrank.source.formats import other_parts
from whichrank.source.formats.yaml_tree import TEMPLATE, Node

_DEPTH_LIMIT = 40
_MOST_NODES = 50_000
_INIT = "init: "
"""In front of a key below initContainers."""
_KEPT = re.compile(
    r"old|disabled?|unused|legacy|debug|example|former|prev|backup|alt|off\b|not\b|never|kept|spare", re.IGNORECASE
)


def tell(out: SettingsFile, documents: list[Node], lines: list[str]) -> None:
    """Add settings that reach nobody to what is lost."""

    def ref(line: int) -> Ref:
        return Ref(out.label, f"line {line}", lines[line - 1].strip()[:300] if 0 < line <= len(lines) else "")

    told: dict[str, set[int]] = {}
    for a in out.assignments:
        if a.how != "build":
            told.setdefault(a.name, set()).add(a.ref.line)
    for found in _prefixed(documents):
        out.lost.append(Lost(found[0], ref(found[1]), *found[2:]))
    for name, line, why, fix in (*_config_maps(documents), *_anchors(documents, lines), *_other_pods(documents)):
        if counts(name) and not told.get(name, set()) - {line}:
            out.lost.append(Lost(name, ref(line), why, fix))


Unused = tuple[str, int, str, str]


def _config_maps(documents: list[Node]) -> Iterator[Unused]:
    """Those of a file that also has the pods with the GPUs."""
    uses: dict[str, set[str]] = {}
    for document in documents:
        for used, way in _uses(document):
            uses.setdefault(used, set()).add(way)
    if not any(way in {"nvidia.com/gpu", "amd.com/gpu"} for ways in uses.values() for way in ways):
        return
    for document in documents:
        kind, metadata, data = document.get("kind"), document.get("metadata"), document.get("data")
        name = metadata.get("name") if metadata is not None else None
        if kind is None or kind.text != "ConfigMap" or name is None or data is None:
            continue
        ways = uses.get(name.text, set())
        only_init = bool(ways) and all(way.startswith(_INIT) for way in ways)
        if TEMPLATE in name.text and not only_init:  # what other files take it is not known
            continue
        fix = f"Add envFrom: [{{configMapRef: {{name: {name.text}}}}}] to the container."
        if only_init:
            why = "only an init container takes its ConfigMap, and that ends before the training container starts"
            fix = "Add the same envFrom to the container that trains."
        elif not ways:
            why = f"no container of this file takes the ConfigMap {name.text}"
        elif ways == {"configMap"}:
            why = f"the ConfigMap {name.text} is mounted as files, which sets no variables"
        else:
            continue
        for key, value in data.entries():
            if value.kind == "scalar":
                yield key.text, key.line, why, fix


_SERVERS = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})


def _other_pods(documents: list[Node]) -> Iterator[Unused]:
    """Settings of a server without GPUs, of another image, beside the pods with the GPUs in the same file."""
    pods = [(document, list(_items_of(document, "containers"))) for document in documents]
    ranks = [each for _, found in pods for each in found if workload.gpus(each) is not None]
    if not ranks or any(each.get("envFrom") is not None for each in ranks):
        return
    images = {_image(each) for each in ranks}
    for document, found in pods:
        alone = all(workload.gpus(each) is None and _image(each) not in images for each in found)
        if _kind(document) not in _SERVERS or not alone:
            continue
        for container in found:
            told = [_image(container), *(text.text for key in ("command", "args") for text in _words(container, key))]
            block = container.get("env")
            for item in block.items if block is not None and not other_parts.may_train(" ".join(told)) else ():
                name, value = item.get("name"), item.get("value")
                if name is not None and value is not None and other_parts.for_ranks_alone(name.text, value.text):
                    why = f"only a {_kind(document)} without GPUs has it, and the pods with the GPUs do not"
                    yield name.text, name.line, why, "Move it to the container that trains."


def _words(container: Node, key: str) -> list[Node]:
    part = container.get(key)
    return part.items if part is not None else []


def _image(container: Node) -> str:
    image = container.get("image")
    return image.text if image is not None else ""


def _prefixed(documents: list[Node]) -> Iterator[Unused]:
    """`envFrom` with a prefix: names of the ConfigMap arrive with something in front that nobody reads."""
    maps = {_named(document): document.get("data") for document in documents if _kind(document) == "ConfigMap"}
    for document in documents:
        for item in _items_of(document, "envFrom"):
            source = item.get("configMapRef")
            name, prefix = source.get("name") if source is not None else None, item.get("prefix")
            data = maps.get(name.text) if name is not None else None
            if prefix is None or data is None or not prefix.text or TEMPLATE in prefix.text:
                continue
            for key, _ in data.entries():
                if counts(key.text) and not counts(f"{prefix.text}{key.text}"):
                    why = f"envFrom puts the prefix in front: the container gets {prefix.text}{key.text}"
                    yield key.text, prefix.line, why, "Leave the prefix out."


def _kind(document: Node) -> str:
    kind = document.get("kind")
    return kind.text if kind is not None else ""


def _named(document: Node) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if metadata is not None else None
    return name.text if name is not None else ""


def _items_of(document: Node, name: str) -> Iterator[Node]:
    """The items of every list of this name, at any depth: `containers`, `envFrom`."""
    for node in _below(document):
        for key, value in node.entries():
            if key.text == name:
                yield from value.items


def _below(document: Node) -> Iterator[Node]:
    """The document and all nodes below it."""
    waiting = [(document, 0)]
    for _ in range(_MOST_NODES):
        if not waiting:
            break
        node, depth = waiting.pop()
        if depth > _DEPTH_LIMIT:
            continue
        yield node
        waiting += [(each, depth + 1) for each in (*node.items, *(value for _, value in node.entries()))]


def _uses(document: Node) -> list[tuple[str, str]]:
    """Texts that a document mentions, with the key above them; for `name: X` that of the map around it."""
    kind = document.get("kind")
    if kind is not None and kind.text == "ConfigMap":
        return []
    found: list[tuple[str, str]] = []
    waiting = [(document, "", 0)]
    for _ in range(_MOST_NODES):
        if not waiting:
            break
        node, key, depth = waiting.pop()
        if depth > _DEPTH_LIMIT:
            continue
        if node.kind == "scalar":
            found.append((node.text, key))
            continue
        waiting += [(item, key, depth + 1) for item in node.items]
        for name, value in node.entries():
            above = key if name.text == "name" and value.kind == "scalar" else name.text
            if key.startswith(_INIT) or name.text == "initContainers":
                above = f"{_INIT}{above.removeprefix(_INIT)}"
            waiting.append((value, above, depth + 1))
    return found


def _anchors(documents: list[Node], lines: list[str]) -> Iterator[Unused]:
    """`x-env: &env` of a compose file in which no service says `*env`."""
    text = "\n".join(lines)
    for document in documents:
        for key, block in document.pairs if document.get("services") is not None else ():
            row = lines[key.line - 1] if 0 < key.line <= len(lines) else ""
            anchor = re.search(r"&([\w-]{1,60})\s*(?:#.*)?$", row)
            about = f"{key.text} {lines[key.line - 2] if key.line > 1 else ''} {row.partition('#')[2]}"
            if not key.text.startswith("x-") or not anchor or block.kind != "map" or _KEPT.search(about):
                continue
            if re.search(rf"\*{re.escape(anchor[1])}(?![\w-])", text):
                continue
            why = f"no service takes the block {key.text}: *{anchor[1]} is written nowhere"
            for name, value in block.entries():
                if value.kind == "scalar":
                    yield name.text, name.line, why, f"Write <<: *{anchor[1]} under environment of the service."

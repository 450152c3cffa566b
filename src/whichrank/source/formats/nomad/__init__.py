"""Nomad jobs: the environment, command and GPUs of each task, and how many allocations its group has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.records.settings import UNKNOWN, SettingsFile
from whichrank.source import memory
from whichrank.source.formats import manifest_environment
from whichrank.source.formats.manifest import KIND, Manifest
from whichrank.source.formats.nomad import hcl_tree
from whichrank.source.formats.yaml_tree import Node
from whichrank.source.shell.allocation import Allocation, Count
from whichrank.source.shell.embedded import run_command


def read(text: str, label: str) -> SettingsFile:
    out = SettingsFile.empty(label, KIND)
    root = hcl_tree.parse(text)
    tasks = 0
    for _, job in _labelled(root, "job"):
        manifest = Manifest(out, text.split("\n"), root, form="nomad")
        manifest.group = f"{label}:{job.line}"
        for _, group in _labelled(job, "group"):
            for name, task in _labelled(group, "task"):
                _task(manifest, name, group, task)
                tasks += 1
    if not tasks:
        out.unread, out.note = True, "HCL without a task of a Nomad job is not read"
    return out


def _labelled(node: Node, kind: str) -> Iterator[tuple[str, Node]]:
    for key, value in node.entries():
        if key.text == kind:
            for label, inner in value.entries():
                yield label.text, inner


def _task(manifest: Manifest, name: str, group: Node, task: Node) -> None:
    scope = f"{manifest.group}:{name}"
    environment, config = task.get("env"), task.get("config")
    given = manifest_environment.block(manifest, environment, scope) if environment is not None else []
    if config is None:
        return
    image, command, arguments = config.get("image"), config.get("command"), config.get("args")
    if image is not None:
        manifest.image(image, scope, whole=False)
    nodes = [command] if command is not None else []
    nodes += arguments.items if arguments is not None else []
    words = [(text, text, node.line) for node in nodes for text in [re.sub(r"\$\{[^}]*\}", UNKNOWN, node.text)]]
    size = Allocation(_count(group.get("count"), "count"), _gpus(task), grace=_grace(task))
    if words:
        manifest.take(run_command(words, manifest.out.label, manifest.lines, given, size), scope)


def _grace(task: Node) -> Count:
    """kill_timeout; 5 seconds by default (Nomad's documentation)."""
    stated = task.get("kill_timeout")
    found = memory.seconds(stated.text) if stated is not None else None
    if stated is None or found is None:
        return Count(5, task.line, "kill_timeout (by default)", exact=False)
    return Count(found, stated.line, "kill_timeout")


def _gpus(task: Node) -> Count | None:
    resources = task.get("resources")
    device = resources.get("device") if resources is not None else None
    for key, inner in device.entries() if device is not None else ():
        if "gpu" in key.text:
            return _count(inner.get("count"), f'device "{key.text}"')
    return None


def _count(node: Node | None, said: str) -> Count | None:
    known = node is not None and re.fullmatch(r"[1-9]\d{0,5}", node.text)
    return Count(int(node.text), node.line, said) if node is not None and known else None

"""YAML and JSON that describe jobs: Kubernetes and what builds on it, compose, Helm values, Ray, SkyPilot, CI.

Read by structure: blocks that are called an environment, lists of name and value, and the scripts that run with
them. Prose (annotations, notes, descriptions) sets nothing.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from whichrank.facts.variables.environment import counts
from whichrank.facts.variables.releases import Release, release_in
from whichrank.model.evidence import Ref
from whichrank.records.launches import Count, Launch
from whichrank.records.settings import UNKNOWN, Lost, SettingsFile
from whichrank.source import workload
from whichrank.source.formats import manifest_environment as variables
from whichrank.source.formats import manifest_forms as forms
from whichrank.source.formats import manifest_keys, other_parts, pod_networks, trainer_config, unused_parts
from whichrank.source.formats.yaml_tree import TEMPLATE, Node, parse
from whichrank.source.places import many_pods, ray_jobs
from whichrank.source.shell.allocation import Allocation
from whichrank.source.shell.allocation import Count as Size
from whichrank.source.shell.embedded import Given, run_command, run_script

KIND = "manifest"
QUOTE_LIMIT = 300
DEPTH_LIMIT = 60
# Aliases make one node appear in many places; a file of people stays far below this.
VISIT_LIMIT = 50_000
SCRIPT_COST = 50
"""Nodes that take as long to visit as a script takes to follow."""


def read(text: str, label: str) -> SettingsFile:
    """What a manifest sets; every container or block of variables is an environment of its own."""
    return _read(text, label, json=False)


def read_json(text: str, label: str) -> SettingsFile:
    return _read(text, label, json=True)


def _read(text: str, label: str, *, json: bool) -> SettingsFile:
    out = SettingsFile.empty(label, KIND)
    try:
        documents, out.note = parse(text, json=json)
    except ImportError:
        out.unread, out.note = True, "PyYAML is not installed: pip install pyyaml"
        return out
    if not documents and text.strip():
        out.unread = bool(out.note)
    lines = text.split("\n")
    for document in documents:
        kind, items = document.get("kind"), document.get("items")
        parts = items.items if kind is not None and kind.text == "List" and items is not None else [document]
        for part in parts:
            Manifest(out, lines, part, templated="{{" in text).read()
    unused_parts.tell(out, documents, lines)
    return out


class Manifest(Struct):
    out: SettingsFile
    lines: list[str]
    root: Node
    templated: bool = False
    form: str = ""
    """"kubernetes", "compose", "sky", "dstack", "ray", "github", "ansible", "no-environment", or empty."""
    kind: str = ""
    group: str = ""
    elsewhere: list[other_parts.Elsewhere] = field(default_factory=list)
    """Variables of containers that are no ranks."""
    trainers: frozenset[str] | None = None
    """Images of the services of compose that are known to start the ranks; None before anybody has asked."""
    budget: int = VISIT_LIMIT
    around: list[Given] = field(default_factory=list)
    """Variables of the blocks around a script."""
    volumes: Node | None = None
    """Those of the pod that is read at present."""
    pod: Node | None = None
    """Its description: the map that has its containers."""
    networks: pod_networks.Networks | None = None
    block: Node | None = None
    """Of values of a chart: the map that is read at present."""
    way: str = ""
    """The component of such values that is read at present: those of two components don't meet."""
    asked: bool = False
    """Somebody has to ask for the service that is read at present."""
    within: set[int] = field(default_factory=set)
    """The nodes around the one that is read at present: an alias of one of these has no end."""

    def read(self) -> None:
        self.recognise()
        self.group = f"{self.out.label}:{self.root.line}"
        if self.form == "kubernetes" and workload.is_production(self.root):
            self.out.production.add(self.out.label)
        if self.form == "no-environment":
            trainer_config.check(self)
        for processes, gpus in workload.stated(self.root, self.kind):
            self.launch(
                Launch("torchrun", self.ref(processes.line), per_host=self.count(processes), gpus=self.count(gpus))
            )
        if self.form == "sky":
            forms.sky(self)
        else:
            self.visit(self.root, self.group, (), 0)
        other_parts.tell(self)
        ray_jobs.check(self)
        if self.form == "compose":
            forms.published_ports(self)
        if self.budget < 0:
            self.out.note = "too large to be read whole"

    def recognise(self) -> None:
        """The form of the file, by its keys."""
        keys = {key.text for key, _ in self.root.pairs}
        kind = self.root.get("kind")
        if any(item.get("tasks") is not None and item.get("hosts") is not None for item in self.root.items):
            self.form = "ansible"
        if "apiVersion" in keys and kind is not None:
            self.form, self.kind = "kubernetes", kind.text
        elif "services" in keys:
            self.form = "compose"
        elif keys & {"num_nodes", "resources", "file_mounts"} and keys & {"run", "setup"}:
            self.form = "sky"
        elif keys & {"available_node_types", "head_start_ray_commands", "cluster_name", "runtime_env"} or (
            "env_vars" in keys and keys <= manifest_keys.RUNTIME_ENVIRONMENT
        ):
            self.form = "ray"
        elif "jobs" in keys and keys & {"on", "true"}:
            self.form = "github"
        elif {"type", "commands"} <= keys and keys & {"nodes", "resources"}:
            self.form = "dstack"
        elif "distributed_type" in keys or trainer_config.is_deepspeed(self.root):
            self.form = "no-environment"

    def ref(self, line: int) -> Ref:
        quote = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return Ref(self.out.label, f"line {line}", quote[:QUOTE_LIMIT])

    def count(self, size: Size | None) -> Count | None:
        return None if size is None else Count(size.number, self.ref(size.line), size.said)

    def launch(self, launch: Launch) -> None:
        if launch not in self.out.launches:
            self.out.launches.append(launch)

    def lost(self, name: str, line: int, why: str, fix: str, *, error: bool = False) -> None:
        if error or counts(name):  # an error is of the whole file, whoever reads the variable
            found = Lost(name, self.ref(line), why, fix, "error" if error else "warning")
            if found not in self.out.lost:
                self.out.lost.append(found)

    # --- structure ---

    def visit(self, node: Node, scope: str, path: tuple[str, ...], depth: int) -> None:
        self.budget -= 1
        if depth > DEPTH_LIMIT or node.kind == "scalar" or self.budget < 0 or id(node) in self.within:
            return
        self.within.add(id(node))
        self.look_into(node, scope, path, depth)
        self.within.discard(id(node))

    def look_into(self, node: Node, scope: str, path: tuple[str, ...], depth: int) -> None:
        if node.kind == "list":
            for item in node.items:
                self.visit(item, scope, path, depth + 1)
            return
        if self.is_container(node, path):
            self.container(node, path, depth)
            return
        kept, pod = self.around, (self.volumes, self.networks, self.pod)
        self.around = [*kept, *variables.given_to_scripts(node)]
        if self.form == "kubernetes":
            self.volumes = node.get("volumes") or self.volumes
            self.pod = node if node.get("containers") is not None else self.pod
            forms.beside_containers(self, node)
            if path or self.kind == "Pod":
                self.networks = pod_networks.of(node) or self.networks
                if self.networks is None and not self.templated:
                    self.networks = pod_networks.plain(node)
        elif not self.form:
            self.networks = pod_networks.of_values(node) or self.networks
        around, self.block = (self.block, self.way), None if self.form else node
        self.way = f"map of line {node.line}" if path and not self.form else ""
        self.parts(node, scope, path, depth)
        self.block, self.way = around
        self.around, (self.volumes, self.networks, self.pod) = kept, pod

    def parts(self, node: Node, scope: str, path: tuple[str, ...], depth: int) -> None:
        for key, value in node.entries():
            name = key.text
            if value.null or self.budget < 0:
                continue
            if self.form == "compose" and name.startswith("x-") and not path:
                continue  # counts where a service refers to it
            if manifest_keys.PROSE.fullmatch(name) and not (
                self.form == "kubernetes" and self.kind == "ConfigMap" and path
            ):
                continue
            self.entry(name, key, value, scope, (*path, name), depth)

    def entry(self, name: str, key: Node, value: Node, scope: str, path: tuple[str, ...], depth: int) -> None:
        if name in forms.IMAGES:
            self.image(value, scope, whole=len(path) < 3)
        forms.port(self, name, value)
        if self.kind in {"ConfigMap", "Secret"} and path[:1] in {("data",), ("stringData",)} and len(path) == 2:
            forms.config_map(self, key, value, scope)
        elif name == "runtimeEnvYAML" and value.kind == "scalar":
            self.runtime_environment(value)
        elif manifest_keys.ENVIRONMENT.fullmatch(name) and other_parts.by_device(self, value):
            return
        elif manifest_keys.ENVIRONMENT.fullmatch(name) and value.kind != "scalar" and variables.sets_something(value):
            own = f"{self.group}:{value.line}"
            self.out.trial_scopes |= {own} if self.block is not None and forms.measures(self.block) else set()
            pod_networks.check(self, variables.block(self, value, own))
        elif value.kind == "scalar" and (manifest_keys.is_setting(name) or name == "WORLD_SIZE") and not value.null:
            variables.record(self, name, value, key.line, scope)
        elif self.form != "kubernetes" and self.is_script(name, value, path):
            self.script(name, value, scope)
        elif name in {"run_options", "worker_run_options", "head_run_options"} and value.kind == "list":
            words = " ".join(item.text for item in value.items)
            self.take(run_script(f"docker run {words} image", self.out.label, value.line, self.lines), scope)
        elif name in {"dependencies", "pip", "packages", "requirements"} and value.kind == "list":
            for item in value.items:
                self.pin(release_in(item.text), "")
            self.visit(value, scope, path, depth + 1)
        else:
            self.visit(value, scope, path, depth + 1)

    def is_script(self, name: str, value: Node, path: tuple[str, ...]) -> bool:
        if value.kind == "map":
            return False
        return bool(manifest_keys.SCRIPTS.fullmatch(name)) or (path[-2:-1] == ("tasks",) and value.kind == "scalar")

    def is_container(self, node: Node, path: tuple[str, ...]) -> bool:
        keys = {key.text for key, _ in node.entries()}
        if self.form == "compose":
            return len(path) == 2 and path[0] == "services"
        return bool(keys & {"image", "env", "envFrom"}) and bool(
            path[-1:]
            and path[-1]
            in {
                "containers", "initContainers", "container", "script", "steps", "containerDefinitions",
                "configurations",
            }
        )  # fmt: skip

    def container(self, node: Node, path: tuple[str, ...], depth: int) -> None:
        """A container's environment, and the command that runs in it."""
        self.budget -= SCRIPT_COST
        image = node.get("image")
        same = f"{image.text}" if image is not None and image.kind == "scalar" else str(node.line)
        group = self.job_of(node, same)
        scope = f"{group}:{node.line}"
        self.out.trial_scopes |= {scope} if forms.measures(node) else set()
        self.asked = self.form == "compose" and node.get("profiles") is not None
        given: list[Given] = []
        part = other_parts.part_of(self, node, path)
        judged = part is None or part.judged
        if part is None:
            self.out.containers.append((scope, same, group))
        for key, value in node.entries():
            if key.text in forms.IMAGES:
                self.image(value, scope, whole=False)
            elif manifest_keys.ENVIRONMENT.fullmatch(key.text) and value.kind in {"map", "list"}:
                given += variables.block(self, value, scope, judged=judged)
            elif key.text == "build" and (arguments := value.get("args")) is not None:
                forms.build_arguments(self, arguments, {g.name for g in given})
        if part is not None:
            own = [g for g in given if part.of_ranks(g)]
            self.elsewhere += [other_parts.Elsewhere(g.name, self.ref(g.line), scope, part) for g in own]
        if not judged:
            return
        if self.form == "compose":
            self.networks = pod_networks.of_service(node, self.root)
        pod_networks.check(self, given)
        self.started(node, scope, given, path)
        many_pods.check(self, node, given)
        kept, self.around = self.around, [*self.around, *given]
        for key, value in node.entries():
            if key.text not in manifest_keys.OWN_PARTS and not manifest_keys.PROSE.fullmatch(key.text):
                self.entry(key.text, key, value, scope, (*path, key.text), depth + 1)
        self.around = kept

    def job_of(self, node: Node, image: str) -> str:
        """The same for containers that are parts of one job."""
        if self.form == "kubernetes":
            return self.group
        return f"{self.group}/{image}{forms.own_job(node) if self.form == 'compose' else ''}"

    def started(self, node: Node, scope: str, given: list[Given], path: tuple[str, ...]) -> None:
        """The command of a container, run with the variables that it gives."""
        words = forms.debugged(node)
        for name in ("entrypoint", "command", "args"):
            part = node.get(name)
            if part is not None and part.kind == "list":
                words += part.items
            elif part is not None and part.kind == "scalar" and not part.null:
                words += self.split(part)
        if words:
            words = forms.entry_point(words)
            texts = [(self.put_in(w.text, given).replace("$$", "$"), *self.handed_over(w)) for w in words]
            shared, locked = workload.limits(node, self.volumes, forms.unsaid(self, node))
            size = workload.size(self.root, self.kind, node)._replace(shared=shared, locked=locked)
            if self.form == "compose" or self.pod is not None:
                size = size._replace(grace=workload.grace(node, self.pod))
            alone = [
                role
                for role, _, count, one in workload.roles(self.root, self.kind)
                if one is node and count.number == 1
            ]
            host = alone[0] if alone else path[-1] if self.form == "compose" else ""
            many = self.kind == "MPIJob"
            if self.kind == "PyTorchJob":  # the operator sets torchrun's own variables
                given = [*given, Given("PET_NODE_RANK", UNKNOWN, node.line)]
            who = "Kubernetes" if self.form == "kubernetes" else ""
            found = run_command(texts, self.out.label, self.lines, given, size, many_hosts=many, host=host, literal=who)
            if self.form == "compose":
                forms.filled_in_by_compose(self, words, given)
                forms.own_network(node, found)
            self.take(found, scope)
            forms.index_of_pod(self, words)
        source = node.get("source")
        if source is not None and source.kind == "scalar":
            self.script("source", source, scope, given)

    def split(self, node: Node) -> list[Node]:
        """A command that is one string: compose splits it at blanks, without a shell."""
        from whichrank.source.shell.tokens import split_words
        from whichrank.source.shell.words import expand

        text, line = self.body(node)
        return [
            Node(
                "scalar", word.line, expand(word.raw.replace("$", "\\$"), lambda _n: None).text.replace("\\$", "$"), "'"
            )
            for word in split_words(text, line)
        ]

    def handed_over(self, node: Node) -> tuple[str, int]:
        """A word as its program gets it: compose makes one dollar of two."""
        text, line = self.body(node)
        return text.replace("$$", "$") if self.form == "compose" else text, line

    def put_in(self, text: str, given: list[Given]) -> str:
        """`$(NAME)` in a word of a pod's command, which Kubernetes fills in."""
        if self.form != "kubernetes" or "$(" not in text or "\n" in text:
            return text
        known = {item.name: item.text for item in given if UNKNOWN not in item.text and "$" not in item.text}
        return re.sub(r"(?<!\$)\$\((\w{1,80})\)", lambda found: known.get(found[1], found.group()), text)

    # --- scripts ---

    def body(self, node: Node) -> tuple[str, int]:
        """A block scalar by its lines (those of `>` joined as a shell joins them), other text as it is."""
        if node.style not in {"|", ">"}:
            return node.text.replace(TEMPLATE, "${TEMPLATE}"), node.line
        rows = self.lines[node.line : max(node.last_line - 1, node.line + 1)]
        if node.style == ">":
            rows = [
                f"{row} \\" if row.strip() and i + 1 < len(rows) and rows[i + 1].strip() else row
                for i, row in enumerate(rows)
            ]
        return "\n".join(rows), node.line + 1

    def script(
        self, name: str, node: Node, scope: str, given: list[Given] | None = None, size: Allocation | None = None
    ) -> None:
        """Shell text under a key that is run."""
        self.budget -= SCRIPT_COST
        if self.budget < 0:
            return
        given = self.around if given is None else given
        size = forms.dstack(self) if self.form == "dstack" else size
        if node.kind == "scalar":
            text, line = self.body(node)
            self.take(
                run_script(text, self.out.label, line, self.lines, given, size),
                scope,
                apart=name == "setup" or self.form in {"github", "ansible"},
            )
            return
        scalars = [item for item in node.items if item.kind == "scalar"]
        if len(scalars) != len(node.items):
            self.visit(node, scope, (name,), 1)
            return
        if name in {"command", "cmd", "entrypoint"}:
            words = [(item.text, *self.body(item)) for item in scalars]
            size = Allocation(None, workload.gpus(self.block)) if self.block is not None else None
            self.take(run_command(words, self.out.label, self.lines, given or [], size), scope)
            return
        if manifest_keys.OWN_SHELLS.fullmatch(name):
            for item in scalars:
                text, line = self.body(item)
                self.take(run_script(text, self.out.label, line, self.lines, given), scope, apart=True)
            return
        self.take(self.joined(scalars, given, size), scope)

    def joined(self, scalars: list[Node], given: list[Given] | None, size: Allocation | None) -> SettingsFile:
        """Items that one shell runs, each on its own line."""
        rows: list[str] = []
        first = scalars[0].line if scalars else 1
        for item in scalars:
            text, line = self.body(item)
            rows += [""] * (line - first - len(rows))
            rows += text.split("\n")
        return run_script("\n".join(rows), self.out.label, first, self.lines, given, size)

    def take(self, inner: SettingsFile, scope: str, *, apart: bool = False) -> None:
        """What a script inside sets goes to its container. Apart: that shell ends before the training starts."""
        launched = inner.note == "launched"
        for a in inner.assignments:
            written = re.search(r">>?\s*\S", a.ref.quote)  # into a file that later commands read
            how = "build" if apart and not launched and a.how == "export" and not written else a.how
            self.out.assignments.append(a._replace(scope=scope, how=how, asked=a.asked or self.asked))
            if how == "build":
                why = "each of these commands runs in a shell of its own, and this one ends before the training"
                fix = "Put it into the environment block, or export it in the command that starts the training."
                self.lost(a.name, a.ref.line, why, fix)
        self.out.lost += [lost for lost in inner.lost if lost not in self.out.lost]
        self.out.late += inner.late
        self.out.baked += inner.baked
        self.out.clashes += [clash for clash in inner.clashes if clash not in self.out.clashes]
        self.out.launches += inner.launches
        self.out.production |= {scope} if inner.production else set()
        self.pin(Release(inner.torch, inner.nccl), "")

    # --- special forms ---

    def runtime_environment(self, node: Node) -> None:
        text, line = self.body(node)
        documents, _ = parse("\n" * (line - 1) + text)
        for document in documents:
            Manifest(self.out, self.lines, document).read()

    def image(self, node: Node, scope: str, *, whole: bool) -> None:
        text = node.text
        if node.kind == "map":
            repository, tag = node.get("repository", "name"), node.get("tag", "version")
            text = f"{repository.text if repository else ''}:{tag.text if tag else ''}"
            text = of_gpus.text if (of_gpus := node.get("cuda")) is not None else text
        self.pin(release_in(text), "" if whole else scope)

    def pin(self, release: Release, scope: str) -> None:
        if scope and (release.torch or release.nccl):
            self.out.pinned[scope] = (release.torch, release.nccl)
        elif not scope:
            self.out.torch = release.torch or self.out.torch
            self.out.nccl = release.nccl or self.out.nccl

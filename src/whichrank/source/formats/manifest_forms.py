"""Parts of manifests with rules of their own: SkyPilot, ConfigMaps, build arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whichrank.facts.variables.environment import is_read
from whichrank.records.launches import OF_ITS_OWN
from whichrank.records.settings import UNKNOWN, Clash, Lost, SettingsFile
from whichrank.source import conf, workload
from whichrank.source.alternatives.in_scripts import is_measurement
from whichrank.source.formats import env_file, manifest_keys, pod_variables
from whichrank.source.formats import manifest_environment as variables
from whichrank.source.formats.yaml_tree import Node
from whichrank.source.places.ports import too_large
from whichrank.source.shell.allocation import Allocation, Count

if TYPE_CHECKING:
    from whichrank.source.formats.manifest import Manifest
    from whichrank.source.shell.embedded import Given

IMAGES = frozenset({
    "image", "image_id", "docker_image", "container_image", "base_image", "imageUri", "image_uri", "Image",
    "TrainingImage",
})  # fmt: skip


def build_arguments(manifest: Manifest, node: Node, set_too: set[str]) -> None:
    names = [(k.text, k.line) for k, _ in node.entries()]
    names += [(item.text.partition("=")[0], item.line) for item in node.items]
    for name, line in names:
        if is_read(name) and name not in set_too:
            why = "a build argument exists only while the image is built"
            manifest.lost(name, line, why, "Put it under environment.")


def debugged(node: Node) -> list[Node]:
    """What an editor starts with `args`: `"module": "torch.distributed.run"`, or `"program": "train.py"`."""
    module, program = node.get("module"), node.get("program")
    target = module or program
    if target is None or target.kind != "scalar":
        return []
    words = ["python", "-m", target.text] if module is not None else ["python", target.text]
    return [Node("scalar", target.line, word, "'") for word in words]


_PORT = re.compile(r"(?:\w{0,40}_)?(?:master|rdzv|rendezvous|main_?process)_?port", re.IGNORECASE)


def port(manifest: Manifest, name: str, value: Node) -> None:
    """`main_process_port: 295000`, `rdzvPort: 294000`."""
    clash = None
    if value.kind == "scalar" and _PORT.fullmatch(name) and not name.isupper():
        clash = too_large(name, value.text, manifest.ref(value.line))
    if clash is not None and clash not in manifest.out.clashes:
        manifest.out.clashes.append(clash)


def measures(node: Node) -> bool:
    """A container or a block of values that tests or measures: by its name, its image or its command."""
    parts = [node.get(name) for name in ("name", "image", "command", "args", "entrypoint")]
    texts = [item.text for part in parts if part is not None for item in (part.items or [part])]
    return is_measurement(word for text in texts[:40] for word in text[:400].split())


def beside_containers(manifest: Manifest, pod: Node) -> None:
    """`env` of a pod instead of its containers, which Kubernetes does not know."""
    block = pod.get("env") if pod.get("containers") is not None else None
    for item in block.items if block is not None else ():
        name = item.get("name")
        if name is not None:
            why = "a pod has no env: variables belong to each container"
            manifest.lost(name.text, name.line, why, "Move it below the container, under containers.")


def entry_point(words: list[Node]) -> list[Node]:
    """Arguments of torchrun for an image whose entry point it is."""
    own = [word for word in words if re.match(r"--(?:nnodes|nproc[-_]per[-_]node|rdzv[-_]\w+)(?:=|$)", word.text)]
    if not words or not words[0].text.startswith("--") or not own:
        return words
    return [Node("scalar", words[0].line, "torchrun", "'"), *words]


def sky(manifest: Manifest) -> None:
    """SkyPilot: `envs` reach both scripts; what `setup` exports ends with it."""
    given: list[Given] = []
    for key, value in manifest.root.entries():
        if key.text in {"envs", "secrets"} and value.kind == "map":
            given += variables.block(manifest, value, manifest.group)
        elif key.text == "setup" and value.kind == "scalar":
            manifest.script("setup", value, manifest.group)
        elif key.text not in {"run", "name"}:
            manifest.visit(value, manifest.group, (key.text,), 1)
            if key.text in IMAGES:
                manifest.image(value, manifest.group, whole=True)
    run = manifest.root.get("run")
    if run is not None and run.kind == "scalar":
        nodes = manifest.root.get("num_nodes")
        hosts = int(nodes.text[:6]) if nodes is not None and nodes.text.isdecimal() else 1
        size = Allocation(
            Count(hosts, nodes.line, "num_nodes") if nodes is not None and hosts else None,
            workload.accelerators(manifest.root.get("resources")),
        )
        manifest.script("run", run, manifest.group, given, size)


def dstack(manifest: Manifest) -> Allocation:
    """dstack: nodes, and GPUs of each as `8`, `H100:8` or `H100:80GB:8`; a range says nothing."""
    nodes, resources = manifest.root.get("nodes"), manifest.root.get("resources")
    gpu = resources.get("gpu") if resources is not None else None
    count = gpu.get("count") if gpu is not None and gpu.kind == "map" else gpu
    match = re.fullmatch(r"(?:[^:\s]+:){0,3}([1-9]\d?)", count.text) if count is not None else None
    return Allocation(
        Count(int(nodes.text), nodes.line, "nodes") if nodes is not None and nodes.text in _FEW else None,
        Count(int(match[1]), count.line, f"gpu: {count.text}") if match and count is not None else None,
    )


_FEW = frozenset(map(str, range(1, 513)))


def filled_in_by_compose(manifest: Manifest, words: list[Node], given: list[Given]) -> None:
    """`$NAME` in a command is the value that the shell around `docker compose` has, not the service's."""
    own = {g.name: g for g in given if UNKNOWN not in g.text and g.text}
    for word in words:
        for match in re.finditer(r"(?<!\$)\$(?:\{(\w+)\}|([A-Za-z_]\w*))", word.text):
            name = match[1] or match[2]
            if name in own:
                why = f"compose fills in {match.group()} from its own shell or .env file, not from environment"
                lost = Lost(name, manifest.ref(word.line), why, f"Write $${name} and run the command with sh -c.")
                if lost not in manifest.out.lost:
                    manifest.out.lost.append(lost)


_ONE_HOST = re.compile(r"--standalone\b|--nnodes[= ](?:1|1:1)(?![\d:])")


def own_job(service: Node) -> str:
    """What sets a service apart from the others, if it is no part of a job with them: a launcher that needs no other
    host, or profiles (`docker compose --profile compare run …`)."""
    words = [part for name in ("entrypoint", "command") if (part := service.get(name)) is not None]
    text = " ".join(item.text for part in words for item in (part.items or [part]))
    started = re.search(r"\b(?:torchrun|torch\.distributed\.run)\b", text)
    given = service.get("environment")
    hosts = "nnodes" in text or (given is not None and any("NNODES" in key.text for key in _keys(given)))
    if started and (_ONE_HOST.search(text) or not hosts):
        return f"/{service.line}"
    profiles = service.get("profiles")
    return "/" + ",".join(item.text for item in profiles.items) if profiles is not None and not started else ""


def _keys(block: Node) -> list[Node]:
    return [key for key, _ in block.entries()] + [item for item in block.items if item.kind == "scalar"]


def own_network(service: Node, found: SettingsFile) -> None:
    """Services on the host's network share its ports and its loopback address, others have their own."""
    mode = service.get("network_mode")
    own = f"{OF_ITS_OWN} {service.line}" if mode is None or mode.text == "bridge" else ""
    for launch in found.launches:
        launch.network = "host" if mode is not None and mode.text == "host" else own


def index_of_pod(manifest: Manifest, words: list[Node]) -> None:
    """Only pods of an indexed job have JOB_COMPLETION_INDEX; those of a JobSet always are."""
    spec = manifest.root.get("spec")
    mode = spec.get("completionMode") if spec is not None else None
    given = {a.name for a in manifest.out.assignments}
    indexed = mode is not None and mode.text == "Indexed"
    if manifest.kind not in _PLAIN or indexed or "JOB_COMPLETION_INDEX" in given or manifest.templated:
        return
    for word in words:
        if re.search(r"\$[{(]?JOB_COMPLETION_INDEX\b", word.text):
            text, first = manifest.body(word)
            at = first + text.count("\n", 0, max(text.find("JOB_COMPLETION_INDEX"), 0))
            why = f"a {manifest.kind} has it only with completionMode: Indexed, and that is not set"
            fix = "Write completionMode: Indexed." if manifest.kind == "Job" else "Take the number from the pod's name."
            manifest.out.lost.append(Lost("JOB_COMPLETION_INDEX", manifest.ref(at), why, fix))


_PLAIN = frozenset({"Job", "StatefulSet", "Deployment", "Pod"})


def unsaid(manifest: Manifest, container: Node) -> int:
    """The line of a container that gets the default of what its file does not say; 0 where others may say it."""
    if manifest.form == "compose":
        services = manifest.root.get("services")
        keys = [key.line for key, value in services.entries() if value is container] if services is not None else []
        return keys[0] if keys and container.get("extends") is None else 0
    ipc = manifest.pod.get("hostIPC") if manifest.pod is not None else None
    own = ipc is None or ipc.text.lower() != "true"
    return container.line if manifest.pod is not None and own and not manifest.templated else 0


def published_ports(manifest: Manifest) -> None:
    """Two services of compose that publish one port of the host; services with profiles may not run together."""
    services = manifest.root.get("services")
    seen: dict[str, Node] = {}
    for _, service in services.entries() if services is not None else ():
        ports = service.get("ports") if service.get("profiles") is None else None
        for item in ports.items if ports is not None else ():
            host = item.get("published")
            match = (
                re.fullmatch(r"(?:[\d.]+:)?(\d{1,5}):\d{1,5}(?:/tcp)?", item.text) if item.kind == "scalar" else None
            )
            port = match[1] if match else host.text if host is not None and host.text.isdecimal() else ""
            if port and port in seen:
                why = f"port {port} of the host is published by another service too, and the second one does not start"
                refs = (manifest.ref(seen[port].line),)
                manifest.out.clashes.append(Clash("ports", manifest.ref(item.line), why, "Publish another port.", refs))
            elif port:
                seen[port] = item


def config_map(manifest: Manifest, key: Node, value: Node, scope: str) -> None:
    name = key.text
    if value.kind != "scalar":
        return
    if name.endswith("nccl.conf") and value.style:
        text, line = manifest.body(value)
        rows = [row.strip() for row in text.split("\n")]
        manifest.out.add(conf.read("\n" * (line - 1) + "\n".join(rows), manifest.out.label))
    elif re.search(r"\.(?:sh|bash|sbatch)$", name) or value.text.startswith("#!/"):
        manifest.script("script", value, scope)
    elif name.endswith(".env"):
        text, line = manifest.body(value)
        manifest.out.add(env_file.read("\n" * (line - 1) + text, manifest.out.label))
    elif manifest_keys.is_setting(name):
        if value.bare:
            why = "a ConfigMap takes strings only, and refuses a bare number or boolean"
            manifest.lost(name, value.line, why, f'Quote it: {name}: "{value.text}"', error=True)
        if manifest.templated:
            pod_variables.bare_in_template(manifest, name, value)
        variables.record(manifest, name, value, key.line, scope)

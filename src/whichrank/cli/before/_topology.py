"""`preflight --map` and `--model-params`: which way traffic takes, and what communication takes of the GPU's memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from whichrank.cli.terminal.output import write
from whichrank.cli.terminal.wrapping import fitted, wrapped
from whichrank.model.errors import UnreadableError, UsageError

if TYPE_CHECKING:
    from whichrank.fleet.engines import Engine
    from whichrank.flows.preflight.topology import Map

HERE = "here"


def draw(
    given: Sequence[str], engine: Engine, agent: Sequence[str], ranks: int | None, format_: str, output: Path | None,
    verdict: Path | None = None,
) -> int:  # fmt: skip
    """The tables, what blocks better paths, and every rank's way to its cable."""
    from whichrank.flows.preflight import blamed, topology
    from whichrank.report._words import safe

    paths = [Path(word) for word in given if word != HERE]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"no such file: {path}", 'Give files, or "here" for the hosts as they are.')
    found = topology.read(paths) if paths else topology.Map()
    if HERE in given:
        _ask_hosts(found, engine, agent)
    each = ranks or next(iter(engine.slots.values()), None) or max((len(h.gpus) for h in found.hosts), default=1)
    places = topology.places(found, engine.hosts, each)
    guilty = blamed.read(verdict) if verdict else None
    if guilty is not None:
        places = guilty.places(found, places)
    notes = [note for host in found.hosts for note in topology.notes(host)]
    notes += topology.cable_notes(found, engine.hosts)
    notes += [f"{name} was not read: {why}" for name, why in found.unread.items()]
    if format_ == "json":
        document = {
            "schema_version": 1,
            "ranks": [{**to_builtins(place), "words": place.words()} for place in places],
            "blamed": guilty.cables(found) if guilty else [],
            "notes": notes,
            "graphs": to_builtins(found.graphs),
            "cables": to_builtins(found.cables),
        }
        write([json.dumps(document, indent=2) + "\n"], output)
        return 0
    lines: list[str] = []
    for host in found.hosts:
        lines += [safe(host.source), *topology.drawing(host), ""]
    for graph in found.graphs:
        ways = f"{graph.type_intra} inside, {graph.type_inter} between hosts"
        lines.append(f"{graph.pattern}: {graph.channels} channels, {graph.speed_intra:g} GB/s inside the host, {ways}")
    told = [f"note: {safe(note)}" for note in notes]
    lines += told if output else [wrapped(line, 2) for line in told]
    if guilty is not None:
        lines += ["", safe(f"The verdict blames {guilty.words()}."), *map(safe, guilty.cables(found))]
    if found.hosts:
        lines += ["", *(safe(place.words()) for place in places)]
    elif found.cables:
        lines += ["Nothing here says which GPU uses which adapter: add --map here, or nvidia-smi topo -m of a host."]
        hosts = dict.fromkeys(place.host for place in places)
        lines += [safe(line) for host in hosts for line in topology.cables_of(found, host)]
    write([line + "\n" for line in lines], output)
    return 0


def _ask_hosts(found: Map, engine: Engine, agent: Sequence[str]) -> None:
    """The hosts' own topology, of those that have GPUs."""
    from whichrank.flows.preflight import topology

    answers = _asked(engine, agent, ["topology", "pci"])
    for host, values in answers.items():
        if (own := topology.of_probes(host, values)) is not None:
            found.hosts.append(own)
    if not found.hosts:
        raise UnreadableError("no host here has a GPU", "Give files: NCCL_TOPO_DUMP_FILE, nvidia-smi topo -m.")


def _asked(engine: Engine, agent: Sequence[str], probes: list[str]) -> dict[str, dict[str, Any]]:
    """Host -> probe -> its values."""
    from whichrank.fleet.host_helpers import host_helpers

    with host_helpers(engine, agent) as everyone:
        replies = everyone.ask_all({"do": "probe", "probes": probes}, 60.0)
    return {
        host: {name: told.get("value") or {} for name, told in reply.result.items()}
        for host, reply in replies.items()
        if isinstance(reply.result, dict)
    }


class _Hardware(Struct, frozen=True):
    """What the hosts have, as far as the budget depends on it."""

    free: tuple[int, str] | None = None
    """The least memory that any GPU has free, and where; None where nobody tells."""
    gpus: int = 0
    """On the host that has most."""
    rdma: bool = True
    """Whether every host that has GPUs has a port for GPUDirect RDMA, too."""
    nvls: bool = False
    """Whether the GPUs are joined by switches that reduce: only such GPUs tell the state of a fabric."""


def _hardware(engine: Engine, agent: Sequence[str]) -> _Hardware:
    told: list[tuple[int, str]] = []
    counts, ports, fabric = [0], [], []
    for host, values in _asked(engine, agent, ["gpus", "rdma"]).items():
        gpus = values.get("gpus", {}).get("gpus") or []
        counts.append(len(gpus))
        if gpus:
            ports.append(any(port.get("state") == "ACTIVE" for port in values.get("rdma", {}).get("ports") or []))
        for gpu in gpus:
            own = gpu.get("values") or {}
            fabric.append(own.get("fabric_state") == "Completed")
            word = str(own.get("memory_free", "")).partition(" ")[0]
            if word.isdigit():
                told.append((int(word) << 20, f"GPU {gpu.get('index')} of {host}"))
    return _Hardware(min(told, default=None), max(counts), all(ports), bool(fabric) and all(fabric))


def tell_budget(
    text: str, strategy: str, units: int, parameter_bytes: int, engine: Engine, agent: Sequence[str],
    ranks: int | None, measure: bool, format_: str, output: Path | None,
) -> int:  # fmt: skip
    """Part by part, and the sum."""
    import os

    from whichrank.flows.preflight.memory_budget import Job, budget, measured, parameters
    from whichrank.report._words import counted

    try:
        count = parameters(text)
    except ValueError as error:
        raise UsageError(f"'{text}' is not a number of parameters", "Write 7B, 350M or 1300000000.") from error
    settings = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    hosts = len(engine.hosts)
    seen = measured() if measure else {}
    found = _hardware(engine, agent)
    free, each = found.free, ranks or found.gpus or 1
    job = Job(
        hosts * each, each, count, parameter_bytes, strategy=strategy, units=units,  # type: ignore[arg-type]
        nvls=found.nvls and each > 2 and settings.get("NCCL_NVLS_ENABLE") != "0", gpudirect=found.rdma,
        settings=settings, context_bytes=seen.get("context_bytes"),
    )  # fmt: skip
    parts = budget(job)
    total = sum(part.octets for part in parts)
    if format_ == "json":
        document = {
            "schema_version": 1, "ranks": job.world_size, "ranks_per_host": each,
            "parts": to_builtins(parts), "bytes": total,
            "free_bytes": free[0] if free else None, "free_on": free[1] if free else None,
        }  # fmt: skip
        write([json.dumps(document, indent=2) + "\n"], output)
        return 1 if free and total > free[0] else 0
    lines = [f"{counted(job.world_size, 'rank')}, {each} on each of {counted(hosts, 'host')}\n"]
    if job.world_size == 1:
        lines.append("One rank talks to nobody: say how many there will be (--nproc-per-node, --hosts).\n")
    lines += [f"{part.octets / 2**20:>10,.0f} MiB  {part.what}: {part.how}\n" for part in parts]
    lines.append(f"{total / 2**20:>10,.0f} MiB  together, per GPU, besides the model and its activations\n")
    if free:
        lines.append(f"{free[0] / 2**20:>10,.0f} MiB  are free now on {free[1]}, the least of all\n")
    else:
        lines.append("What is free could not be told: no GPU here, or no driver.\n")
    write(lines if output else fitted(lines), output)
    return 1 if free and total > free[0] else 0

"""`preflight --map` and `--model-params`: which way traffic takes, and what communication takes of the GPU's memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from whichrank.cli.terminal.output import write
from whichrank.model.errors import UsageError


def draw(paths: Sequence[Path], hosts: Sequence[str], ranks: int, format_: str, output: Path | None) -> int:
    """The tables, what blocks better paths, and every rank's way to its cable."""
    from whichrank.flows.preflight import topology
    from whichrank.report._words import safe

    found = topology.read(paths)
    places = topology.places(found, hosts, ranks)
    notes = [note for host in found.hosts for note in topology.notes(host)]
    if format_ == "json":
        document = {
            "schema_version": 1,
            "ranks": [{**asdict(place), "words": place.words()} for place in places],
            "notes": notes,
            "graphs": [asdict(graph) for graph in found.graphs],
            "cables": [asdict(cable) for cable in found.cables],
        }
        write([json.dumps(document, indent=2) + "\n"], output)
        return 0
    lines: list[str] = []
    for host in found.hosts:
        lines += [safe(host.source), *topology.drawing(host), ""]
    for graph in found.graphs:
        ways = f"{graph.type_intra} inside, {graph.type_inter} between hosts"
        lines.append(f"{graph.pattern}: {graph.channels} channels, {graph.speed_intra:g} GB/s inside the host, {ways}")
    lines += ["", *(f"note: {safe(note)}" for note in notes), "", *(safe(place.words()) for place in places)]
    write([line + "\n" for line in lines], output)
    return 0


def tell_budget(
    text: str, strategy: str, units: int, size: tuple[int, int], measure: bool, format_: str, output: Path | None
) -> int:  # fmt: skip
    """Part by part, and the sum."""
    import os

    from whichrank.flows.preflight.memory_budget import Job, budget, measured, parameters

    try:
        count = parameters(text)
    except ValueError as error:
        raise UsageError(f"'{text}' is not a number of parameters", "Write 7B, 350M or 1300000000.") from error
    settings = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    hosts, ranks = size
    seen = measured() if measure else {}
    job = Job(
        hosts * ranks, ranks, count, strategy=strategy, units=units, settings=settings,  # type: ignore[arg-type]
        context_bytes=seen.get("context_bytes"),
    )  # fmt: skip
    parts = budget(job)
    total = sum(part.octets for part in parts)
    if format_ == "json":
        document = {"schema_version": 1, "parts": [asdict(part) for part in parts], "bytes": total}
        write([json.dumps(document, indent=2) + "\n"], output)
        return 0
    lines = [f"{part.octets / 2**20:>10,.0f} MiB  {part.what}: {part.how}\n" for part in parts]
    lines.append(f"{total / 2**20:>10,.0f} MiB  together, per GPU, besides the model and its activations\n")
    if free := seen.get("free_bytes"):
        lines.append(f"{free / 2**20:>10,.0f} MiB  are free on the first GPU here now\n")
    write(lines, output)
    return 1 if free and total > free else 0

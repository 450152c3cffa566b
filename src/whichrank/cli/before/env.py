"""Print recommended settings with reasons, or check the ones you have."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whichrank.cli.terminal.output import write
from whichrank.model.errors import UnreadableError, UsageError
from whichrank.model.settings import FABRICS, PURPOSES, Fabric, Purpose

if TYPE_CHECKING:
    from whichrank.flows.env.lint import LintResult
    from whichrank.flows.env.recommend import Environment
    from whichrank.records.settings import ObservedWait, SettingsFile

FORMATS = ("text", "shell", "docker", "env-file", "kubernetes", "slurm", "python", "json")
KINDS = (
    "shell", "dockerfile", "manifest", "json", "python", "systemd", "makefile", "justfile", "fish", "csh", "htcondor",
    "nomad", "toml", "env-file", "nccl.conf", "environment",
)  # fmt: skip
HEALTHY, FINDINGS, NOT_ENOUGH = 0, 1, 3
output_option = click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout."
)


@click.group(name="env", invoke_without_command=True)
@click.option("--for", "purpose", type=click.Choice(PURPOSES), help="What the job is for (default: production).")
@click.option("--torch", help="torch version (default: the one installed here).")
@click.option("--nccl", help="NCCL version (default: the one installed with torch).")
@click.option("--fabric", type=click.Choice(FABRICS), help="What connects the hosts (default: what this host has).")
@click.option("--out", help="Folder for dumps and logs (default: /tmp/whichrank-UID).")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="text and shell are exports (default: text).")
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    purpose: Purpose | None,
    torch: str | None,
    nccl: str | None,
    fabric: Fabric | None,
    out: str | None,
    format_: str | None,
    output: Path | None,
) -> None:
    """Print recommended settings for a purpose: only what this version reads, each with a reason.

    For a shell: eval "$(whichrank env --for debug --out /data/run7)". Variables that you have set are kept.
    """
    if ctx.invoked_subcommand is not None:
        return
    from whichrank.flows.env.recommend import DEFAULT_OUT, assumed, environment

    chosen = environment(purpose or "production", out=out or DEFAULT_OUT, torch=torch, nccl=nccl, fabric=fabric)
    write(_settings(chosen, format_ or "text"), output)
    for name in chosen.kept:
        click.echo(f"left alone, because you have set it: {name}", err=True)
    if assumed(chosen):
        click.echo(assumed(chosen), err=True)


def _settings(chosen: Environment, format_: str) -> Iterator[str]:
    from whichrank.report._environment import WRITERS

    if format_ == "json":
        fields = ("name", "value", "reason", "source")
        document = {
            "schema_version": 1,
            "purpose": chosen.purpose,
            "out": chosen.out,
            "torch": chosen.torch,
            "nccl": chosen.nccl,
            "fabric": chosen.fabric,
            "settings": [{field: getattr(s, field) for field in fields} for s in chosen.settings],
            "kept": list(chosen.kept),
        }
        yield json.dumps(document, indent=2) + "\n"
        return
    if format_ in {"text", "shell", "slurm"}:
        versions = f"torch {chosen.torch or 'unknown'}, NCCL {chosen.nccl or 'unknown'}"
        yield f"# whichrank env --for {chosen.purpose} ({versions}, fabric {chosen.fabric or 'unknown'})\n"
    yield from WRITERS["shell" if format_ == "text" else format_](chosen.settings, chosen.out)


@command.command(name="lint")
@click.argument("paths", metavar="[FILE]...", nargs=-1)
@click.option("--for", "purpose", type=click.Choice(PURPOSES), help="production: settings for debugging are findings.")
@click.option("--torch", help="torch version that the job uses.")
@click.option("--nccl", help="NCCL version that the job uses.")
@click.option("--this-host", is_flag=True, help="The job runs on this host: check devices and installed versions.")
@click.option("--as", "kind", type=click.Choice(KINDS), help="What the files are (default: by name and content).")
@click.option("--pid", "pids", type=click.IntRange(min=1), multiple=True, help="A live process; may be repeated.")
@click.option(
    "--nccl-log", "logs", type=click.Path(path_type=Path), multiple=True, help="The job's NCCL log: what NCCL read."
)
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", help="Report format.")
@output_option
@click.pass_context
def lint_command(
    ctx: click.Context,
    paths: tuple[str, ...],
    purpose: Purpose | None,
    torch: str | None,
    nccl: str | None,
    this_host: bool,
    kind: str | None,
    pids: tuple[int, ...],
    logs: tuple[Path, ...],
    format_: str,
    output: Path | None,
) -> None:
    """Find what is wrong with settings; without a FILE, with those of this environment.

    FILE is a shell, csh or fish script, a batch file (Slurm, PBS, LSF, SGE, Flux, HTCondor), a Dockerfile, YAML or JSON
    (Kubernetes, compose, Helm values, Ray, SkyPilot, GitLab and GitHub workflows), a Nomad job, a systemd unit, a
    Makefile or justfile, TOML with tasks (pyproject, pixi), an env file, a Python program, nccl.conf, the captured
    environment of a rank (`env` output or /proc/PID/environ), or a folder of such files. "-" reads standard input.
    Exits with 3 if none of the files has a format that it can read.

    \b
    whichrank env lint train.sbatch
    whichrank env lint --torch 2.6 deploy/
    """
    from whichrank.flows.env.lint import host_devices, lint, present_environment, read_path

    given = ctx.parent.params if ctx.parent else {}
    purpose, torch, nccl = (
        purpose or given.get("purpose"),
        torch or given.get("torch"),
        nccl or given.get("nccl"),
    )
    live = not paths and not pids
    files = present_environment() if live else []
    for text in paths:
        files += [_stdin(kind)] if text == "-" else read_path(_existing(text), kind)
    if pids:
        from whichrank.flows.env.processes import of_process

        files += [of_process(pid, list(logs)) for pid in pids]
    here = live or this_host or bool(pids)
    found_torch = found_nccl = interfaces = hcas = None
    if here:
        from whichrank.flows.env.recommend import installed

        found_torch, found_nccl = installed()
        interfaces, hcas = host_devices()
    result = lint(
        files,
        torch=torch or found_torch,
        nccl=nccl or (found_nccl if torch is None else None),
        purpose=purpose,
        interfaces=interfaces,
        hcas=hcas,
    )
    write(_json(result) if format_ == "json" else _text(result), output)
    ctx.exit(FINDINGS if result.wrong else NOT_ENOUGH if result.unread else HEALTHY)


@command.command(name="timeouts")
@click.argument("paths", metavar="[DUMP]...", nargs=-1)
@click.option("--gap", "gaps", multiple=True, help="A legitimate gap that you know of: checkpoint=15m, step=2s.")
@click.option("--timeout", type=click.FloatRange(min=0), help="The configured timeout in seconds, for --gap.")
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", help="Report format.")
@output_option
@click.pass_context
def timeouts_command(
    ctx: click.Context,
    paths: tuple[str, ...],
    gaps: tuple[str, ...],
    timeout: float | None,
    format_: str,
    output: Path | None,
) -> None:
    """Compare timeouts with the waits that were seen, in flight-recorder dumps or by your own measurement.

    Says which timeout is too close to a wait that ended well, and when raising it would only hide a fault.
    """
    from whichrank.flows.env.lint import lint
    from whichrank.flows.env.timeouts import given_gap, observed, read_dumps

    if not paths and not gaps:
        raise UsageError("there is nothing to compare", "Give the dumps of all ranks, or --gap and --timeout.")
    dumps = read_dumps([_existing(text) for text in paths])
    waits = [*observed(dumps), *(given_gap(gap, timeout) for gap in gaps)]
    if not waits:
        raise UnreadableError("no collective was recorded in these files", "Give flight-recorder dumps.")
    result = lint([], waits=waits)
    write(_json(result) if format_ == "json" else _waits(waits, result), output)
    ctx.exit(FINDINGS if result.wrong else HEALTHY)


def _waits(waits: list[ObservedWait], result: LintResult) -> Iterator[str]:
    for wait in waits:
        state = "ended after" if wait.ended else "never ended, had waited"
        limit = "unknown" if wait.timeout_s is None else f"{wait.timeout_s:.0f} s"
        yield f"group {wait.group}: {wait.what} {state} {wait.seconds:.1f} s (timeout {limit})\n"
    yield from _text(result)


def _existing(text: str) -> Path:
    if not Path(text).exists():
        raise UsageError(f"no such file: {text}", "Give scripts, manifests or captured environments.")
    return Path(text)


def _stdin(kind: str | None) -> SettingsFile:
    from whichrank.source import launch

    data = sys.stdin.buffer.read(launch.SIZE_LIMIT + 1)
    if not data.strip():
        raise UnreadableError("standard input is empty", "Pipe a script or an environment into it.")
    return launch.read(data, "standard input", kind)


def _json(result: LintResult) -> Iterator[str]:
    from whichrank.report._environment import findings_document

    yield json.dumps(findings_document(result.findings, result.coverage), indent=2) + "\n"


def _text(result: LintResult) -> Iterator[str]:
    from whichrank.report._words import counted, safe

    for found in result.findings:
        ref = found.evidence[0]
        yield f"{safe(ref.source)}, {ref.locator}: {found.severity}: {safe(found.message)} [{found.code}]\n"
        yield f"    {safe(ref.quote)}\n"
        for step in found.fix:
            yield f"    fix: {safe(step)}\n"
    for source in result.coverage.sources:
        if source.quality == "unusable":
            yield f"{safe(source.path)}: not read: {safe(source.note)}\n"
    looked = ", ".join(
        f"{safe(s.path)} ({s.reader}{', ' + safe(s.note) if s.note else ''})"
        for s in result.coverage.sources
        if s.quality != "unusable"
    )
    yield f"{counted(len(result.findings), 'finding')}. Looked at: {looked or 'nothing'}.\n"
    for skipped in result.coverage.not_evaluated:
        yield f"Not checked ({skipped.code}), missing: {skipped.missing}.\n"

"""Profile chosen ranks of a job without changing its code, and show where the time goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from whichrank.model.errors import UsageError


@click.command(name="profile", context_settings={"allow_interspersed_args": False})
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Where the profiles go (default: a new folder)."
)
@click.option("--ranks", help="Ranks to profile, such as 0,3 or 0-7 (default: all).")
@click.option(
    "--skip", type=click.IntRange(min=0), default=10, show_default=True, help="Optimizer steps before it begins."
)
@click.option("--steps", type=click.IntRange(min=1, max=1000), default=5, show_default=True, help="Steps to record.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Stop after this long at the latest.",
)
@click.option(
    "--max-mb", type=click.IntRange(min=1), default=256, show_default=True, help="Largest profile of a rank to keep."
)
@click.option("--shapes", is_flag=True, help="Record the shapes of all tensors too (costs more).")
@click.option("--stacks", is_flag=True, help="Record Python stacks too (costs more).")
@click.option("--nvtx", is_flag=True, help="Record nothing, but put NVTX ranges around operators and collectives.")
@click.option("--no-report", is_flag=True, help="Only record; run `whichrank trace` on it later.")
@click.option("--quiet", is_flag=True, help="Print nothing on stderr but what the job writes.")
@click.argument("command_line", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context,
    out: Path | None,
    ranks: str | None,
    skip: int,
    steps: int,
    seconds: float,
    max_mb: int,
    shapes: bool,
    stacks: bool,
    nvtx: bool,
    no_report: bool,
    quiet: bool,
    command_line: tuple[str, ...],
) -> None:
    """Run COMMAND unchanged and record a few of its steps with torch.profiler.

    Recording begins and ends between two steps of the optimizer. The job's exit code, signals and streams are its own.

    \b
    whichrank profile -- torchrun --nproc_per_node=8 train.py
    whichrank profile --ranks 0,7 --skip 100 --steps 10 --out prof -- srun python train.py
    whichrank profile --nvtx -- nsys profile -t cuda,nvtx --capture-range=cudaProfilerApi torchrun … train.py
    """
    from whichrank.run import profile

    place = out or fresh()
    wishes = profile.Wishes(chosen(ranks), skip, steps, seconds, max_mb << 20, shapes=shapes, stacks=stacks, nvtx=nvtx)

    def tell(text: str) -> None:
        if not quiet:
            click.echo(f"whichrank: {text}", err=True)

    code = profile.run(command_line, place, wishes, tell)
    concluded(place, skip, tell, report=not no_report)
    if code < 0:
        from whichrank.cli.during.run import _die_alike

        _die_alike(-code)
    ctx.exit(code)


def concluded(place: Path, skip: int, tell: Callable[[str], None], *, report: bool = True) -> None:
    """Say what was recorded."""
    from whichrank.run import profile

    if ranges := len(list(place.glob("rank-*.nvtx"))):
        tell(f"NVTX ranges were put around operators and collectives of {ranges} ranks; Nsight Systems has them")
    elif not profile.recorded(place):
        tell(f"nothing was recorded: no chosen rank made {skip + 2} steps of a torch optimizer")
    elif report:
        _report(place, tell)


def _report(place: Path, tell: Callable[[str], None]) -> None:
    """What `trace` says of the profiles, on stderr, and the page beside them."""
    from whichrank.cli.terminal.output import write
    from whichrank.flows.trace.analyse import trace
    from whichrank.report.steps import html, text

    report = trace([place])
    write(html.render(report), place / "trace.html")
    click.echo("".join(text.render(report)), err=True, nl=False)
    tell(f"profiles and trace.html are in {place}; again: whichrank trace {place}")


def fresh() -> Path:
    """A new folder, named for the time."""
    from datetime import datetime, timezone

    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return Path(f"whichrank-profile-{stamp}")


def chosen(text: str | None) -> tuple[int, ...] | None:
    """Ranks by a list of numbers and ranges."""
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or (last and int(last) - int(first) > 1 << 16):
            raise UsageError(f"'{text}' does not name ranks", "Write them as 0,3 or 0-7.")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))

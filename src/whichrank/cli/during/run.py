"""Run a job under watch, and get the verdict when it hangs or crashes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import click

from whichrank.cli.options.monitors import monitor_options
from whichrank.cli.options.nodes import node_options, part, peers_of
from whichrank.cli.options.restart import plan_of, restart_options
from whichrank.cli.options.site_rules import rules_option
from whichrank.cli.terminal import output
from whichrank.model.settings import PURPOSES, Purpose


@click.command(name="run", context_settings={"allow_interspersed_args": False})
@rules_option
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where verdict and evidence go.")
@click.option(
    "--policy",
    type=click.Choice(["report", "end"]),
    default="report",
    help="When a hang is confirmed: only report it, or end the job. `end` waits longer than a report.",
)
@click.option(
    "--for", "purpose", type=click.Choice(PURPOSES), default="production", help="Settings to run with (see env)."
)
@click.option("--preflight", "gate", is_flag=True, help="Check this host first; don't start the job on an error.")
@click.option(
    "--guard",
    is_flag=False,
    flag_value="on",
    default=None,
    type=click.Choice(["on", "strict"]),
    metavar="[=strict]",
    help="Compare replicas, local gradients and collectives while the job runs; --guard=strict before each collective.",
)
@click.option("--profile", is_flag=True, help="Also record a few steps of every rank (see profile).")
@click.option("--guard-stop", is_flag=True, help="End the job as soon as the guard finds it going wrong.")
@restart_options
@node_options
@monitor_options
@click.option("--network-settings", "network", is_flag=True, help="Also set which network interfaces to use (see env).")
@click.option("--verbose", is_flag=True, help="List the variables that are added to the job's environment.")
@click.option("--quiet", is_flag=True, help="Print nothing on stderr but what the job writes.")
@click.argument("command_line", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context, /, out: Path | None, policy: str, purpose: str, guard: str | None, guard_stop: bool,
    network: bool, verbose: bool, quiet: bool, gate: bool, profile: bool, command_line: tuple[str, ...],
    **wishes: Any,
) -> None:  # fmt: skip
    """Run COMMAND (torchrun, python, accelerate launch …) unchanged, and watch its ranks.

    The job's exit code, signals and streams are its own. When no rank makes progress, or one dies, the evidence of
    every rank is collected; the verdict goes to stderr and to --out.

    \b
    whichrank run -- torchrun --nproc_per_node=8 train.py
    whichrank run --policy end --out run7/ -- torchrun --nproc_per_node=8 train.py
    whichrank run --restart 3 --checkpoints ckpt/ --resume-arg '--resume {path}' -- torchrun … train.py
    srun whichrank run --leader node1:29777 -- torchrun --nnodes=4 … train.py
    """
    from whichrank.run.monitoring.monitors import Monitors, Wishes, job_name
    from whichrank.run.watch.session import Wish, run
    from whichrank.run.watch.watcher import Policy

    def tell(text: str) -> None:
        if not quiet:
            output.told(text)

    if gate:
        from whichrank.cli.during._gate import refuses

        if refuses(command_line, tell):
            ctx.exit(1)
    plan = plan_of(wishes)
    peers = peers_of(wishes, command_line, tell, out)
    audience = Monitors(Wishes(**wishes), job_name(command_line), tell)
    try:
        with profiled(out, tell) if profile else nullcontext():
            code = run(
                command_line, out,
                Wish(
                    cast("Policy", policy), cast("Purpose", purpose), network, verbose,
                    guard=guard or ("on" if guard_stop else ""), guard_stop=guard_stop,
                ),
                tell=tell, audience=audience, plan=plan, peers=peers,
            )  # fmt: skip
    finally:
        audience.close()
        part(peers)
    if code < 0:
        _die_alike(-code)
    ctx.exit(code)


@contextmanager
def profiled(out: Path | None, tell: Callable[[str], None]) -> Iterator[None]:
    """Record a few steps of the job that runs meanwhile, and say at its end where their time went."""
    from whichrank.cli.during.profile import concluded, fresh
    from whichrank.run.profile import Wishes, failures, hooked

    place, wishes = out / "profile" if out else fresh(), Wishes()
    with hooked(place, wishes):
        yield
    failures(place, tell)
    concluded(place, wishes.skip, tell)


def _die_alike(number: int) -> None:
    """End by the signal that ended the job, so that the shell sees the same."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by the caller
            stream.flush()
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)
    sys.exit(128 + number)

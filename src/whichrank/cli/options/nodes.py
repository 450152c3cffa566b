"""The options of `run` for jobs on several nodes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from whichrank.model.errors import UsageError

if TYPE_CHECKING:
    from whichrank.run.nodes.joining import Joining
    from whichrank.run.nodes.peers import Peers

F = TypeVar("F", bound=Callable[..., Any])


def node_options(command: F) -> F:
    """Add the options; their values are what `peers_of` takes."""
    for option in reversed(
        (
            click.option(
                "--leader", metavar="HOST:PORT", default="",
                help="Address of the leading node; give all nodes the same.",
            ),
            click.option(
                "--shared", type=click.Path(file_okay=False, path_type=Path),
                help="A private folder that all nodes share: no port is opened.",
            ),
            click.option(
                "--nodes", type=click.IntRange(1), metavar="N", help="Number of nodes, if the command does not say."
            ),
            click.option("--node-name", default="", help="Name of this node (default: from Slurm, or the host name)."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def peers_of(
    options: dict[str, Any], command: Sequence[str], tell: Callable[[str], None], out: Path | None
) -> Peers | None:
    """Take the options out; None for a job of one node. Whoever follows tells nobody else: the leader does."""
    leader, shared = options.pop("leader"), options.pop("shared")
    nodes, name = options.pop("nodes"), options.pop("node_name")
    if not (leader or shared or nodes or _may_be_many(command)):
        return None
    from whichrank.run.nodes.joining import Joining, join
    from whichrank.run.nodes.peers import Peers

    wish = Joining(nodes, leader, shared, name, options["token_file"])
    link = join(wish if leader or shared else _as_tasks(wish, out, tell), command, tell)
    if link is None:
        return None
    if link.following is not None:
        options.update(metrics="", notify=(), otlp="", history=False)
    return Peers(link, tell)


def part(peers: Peers | None) -> None:
    """Close the line to the others; the last one of a Slurm step takes the meeting place away."""
    if peers is None:
        return
    peers.link.close()
    side = peers.link.leading
    folder = getattr(side, "folder", None)
    if side is None or not isinstance(folder, Path) or not folder.name.startswith(".meeting-"):
        return
    if not any(True for _ in side.roster.standing("here", "silent")):
        shutil.rmtree(folder, ignore_errors=True)
        for each in (folder.parent / "nodes", folder.parent):
            with suppress(OSError):  # there is something of interest in it
                each.rmdir()


def _as_tasks(wish: Joining, out: Path | None, tell: Callable[[str], None]) -> Joining:
    """Tasks of one Slurm step meet in the folder of the job's results, if nobody says otherwise."""
    from whichrank.run.nodes.leases import prepare
    from whichrank.run.resume import slurm

    known = slurm.here()
    if known is None or not known.shared:
        return wish
    try:
        prepare(known.meeting(out))
    except UsageError as error:  # not asked for: no reason to keep a job from running
        tell(f"every task works alone: {error.message}")
        return wish
    return replace(wish, nodes=known.tasks, shared=known.meeting(out), name=wish.name or known.own_name)


def _may_be_many(command: Sequence[str]) -> bool:
    """Whether it is worth to look closer: most jobs have one node, and need none of this."""
    names = ("PET_NNODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_TASKS")
    counts = [os.environ.get(name, "1") for name in names]
    return any(count != "1" for count in counts) or any("nnodes" in word or "num" in word for word in command)

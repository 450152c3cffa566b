"""Make evidence safe to share: remove host and user names, addresses and secrets."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whichrank.cli.terminal.output import write
from whichrank.cli.terminal.progress import ProgressLine

if TYPE_CHECKING:
    from whichrank.flows.scrub import Scrubbed

_SUFFIXES = (".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip")
_MOST_SHOWN = 40


@click.command(name="scrub")
@click.argument("path", metavar="PATH", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Where the copy goes (default: PATH-scrubbed)."
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(path: Path, out: Path | None, quiet: bool) -> None:
    """Write a copy of PATH in which hosts, users, addresses and secrets are replaced.

    PATH is a bundle, the folder of `whichrank run`, an archive of either, or any folder of logs. The original is not
    changed. The same name becomes the same other name in every file, file name and archive, so that `whichrank
    diagnose` gives the same verdict for the copy. What can't be rewritten (packet captures, core files, databases,
    unknown formats) is left out and listed, here and in scrub-report.json.

    Look through the copy before you share it: your code, names of projects and what the job printed stay in it.

    \b
    Examples:
      whichrank scrub whichrank-run-4711/
      whichrank scrub bundle.tar.gz --out /tmp/for-the-vendor
    """
    from whichrank.flows.scrub import scrub

    if out is None:
        whole = path.resolve()
        name = whole.name
        while not whole.is_dir() and name.endswith(_SUFFIXES):
            name = name.rpartition(".")[0]
        out = whole.with_name(f"{name}-scrubbed")
    with closing(ProgressLine(quiet=quiet)) as progress:
        done = scrub(path, out, key=secrets.token_bytes(32), progress=progress)
    if not quiet:
        write([_text(done)], None)


def _text(done: Scrubbed) -> str:
    from whichrank.report._words import counted, safe

    lines = [f"The copy is in {done.out} ({counted(done.files, 'file')})."]
    total = sum(done.changed.values())
    lines.append(f"{counted(total, 'place')} changed:")
    for kind, count in sorted(done.changed.items(), key=lambda pair: -pair[1]):
        lines.append(f"  {count:>9,}  {kind}")
    if done.left_out:
        lines.append(f"{counted(len(done.left_out), 'file')} left out:")
        lines += [f"  {safe(path)}: {safe(why)}" for path, why in done.left_out[:_MOST_SHOWN]]
        if len(done.left_out) > _MOST_SHOWN:
            lines.append(f"  and {len(done.left_out) - _MOST_SHOWN:,} more, in scrub-report.json")
    lines.append("Look through the copy before you share it: code, project names and messages are still in it.")
    return "\n".join(lines) + "\n"

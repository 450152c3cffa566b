"""Make a bundle safe to share: no names of hosts and users, no addresses, no secrets."""

from __future__ import annotations

import secrets
from pathlib import Path

import click


@click.command(name="scrub")
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Where the copy goes (default: BUNDLE-scrubbed)."
)
@click.option("--quiet", is_flag=True, help="No summary on stderr.")
def command(bundle: Path, out: Path | None, quiet: bool) -> None:
    """Write a copy of BUNDLE in which names are others, always the same for the same name.

    The bundle itself stays as it is. Look through the copy before you share it: code, paths of projects and what
    the job printed are evidence and stay in it.
    """
    from whichrank.evidence.scrub import scrub

    out = out or bundle.resolve().with_name(f"{bundle.resolve().name}-scrubbed")
    changed = scrub(bundle, out, key=secrets.token_bytes(32))
    if not quiet:
        click.echo(f"{changed} places were changed; the copy is in {out}", err=True)

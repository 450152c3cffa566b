"""`preflight --clean`: the only part that changes anything, and only after a yes."""

from __future__ import annotations

import sys

import click

HEALTHY, FINDINGS = 0, 1


def clean(*, yes: bool) -> int:
    """List what dead jobs left, ask, and remove what belongs to this user and to no live process."""
    from whichrank.evidence import leftovers
    from whichrank.report._words import counted, safe

    found = leftovers.find()
    ours = [left for left in found if left.ours]
    for left in found:
        size = f", {left.bytes:,} bytes" if left.bytes else ""
        whose = " (yours)" if left.ours else f" (of user {left.owner}: left alone)"
        click.echo(f"{left.kind} {safe(left.name)}{size}: {safe(left.detail)}{whose}")
    if not ours:
        click.echo("Nothing to clean." if not found else "Nothing of yours to clean.")
        return HEALTHY
    if not yes:
        if not sys.stdin.isatty():
            click.echo("Nothing was removed: there is nobody to ask. --yes removes without asking.", err=True)
            return FINDINGS
        if not click.confirm(f"Remove {counted(len(ours), 'thing')} of yours?", default=False):
            return FINDINGS
    kept = {left.name: why for left in ours if (why := leftovers.remove(left))}
    for name, why in kept.items():
        click.echo(f"kept {safe(name)}: {why}", err=True)
    click.echo(f"Removed {counted(len(ours) - len(kept), 'thing')}.")
    return FINDINGS if kept else HEALTHY

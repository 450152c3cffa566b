"""Check and list rules, messages and fixes of your own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whichrank.cli.options.site_rules import rules_option

if TYPE_CHECKING:
    from whichrank.flows.plugins.check import Checked


@click.group(name="rules")
def command() -> None:
    """Add what your site knows to what whichrank knows.

    A plug-in is a folder (rules/*.py, signatures/*.ini, causes.csv, fixes.csv). It is used when WHICHRANK_RULES or
    --rules names it, when it is ~/.config/whichrank/rules or /etc/whichrank/rules, or when an installed package
    has an entry point in the group "whichrank.rules". docs/plugins.md has a complete example.

    \b
    whichrank rules check site-rules/      # before you use or share it: exit code 1 if anything is wrong
    whichrank rules list                   # what is in use, and where it comes from
    whichrank diagnose --rules site-rules/ job-folder/
    """


@command.command(name="check")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", help="Report format.")
@click.pass_context
def check_command(ctx: click.Context, folder: Path, format_: str) -> None:
    """Test the plug-in in FOLDER as the built-in rules are tested.

    Each rule must have a page, a code of its own, a known cause, and evidence on which it fires and on which it does
    not. Each message must match its examples, with a pattern that no line can make slow. The rules are executed, in
    a process of their own.
    """
    from whichrank.flows.plugins.check import check

    checked = check(folder)
    if format_ == "json":
        click.echo(json.dumps(_document(folder, checked), indent=2))
    else:
        for complaint in checked.complaints:
            click.echo(f"{complaint.path}: {complaint.kind}: {complaint.message}")
        click.echo(_summary(checked))
    ctx.exit(1 if checked.complaints else 0)


def _summary(checked: Checked) -> str:
    counted = [
        (len(checked.rules), "rule"), (len(checked.signatures), "signature"),
        (len(checked.causes), "cause"), (checked.fixes, "fix"),
    ]  # fmt: skip
    plural = {"fix": "fixes"}
    parts = [f"{n} {word if n == 1 else plural.get(word, word + 's')}" for n, word in counted if n]
    wrong = len(checked.complaints)
    end = f"{wrong} problem{'' if wrong == 1 else 's'}" if wrong else "all checks passed"
    return f"{', '.join(parts)}: {end}" if parts else end


def _document(folder: Path, checked: Checked) -> dict[str, object]:
    return {
        "schema_version": 1,
        "folder": str(folder),
        "rules": list(checked.rules),
        "signatures": list(checked.signatures),
        "causes": list(checked.causes),
        "fixes": checked.fixes,
        "problems": [{"kind": c.kind, "path": c.path, "message": c.message} for c in checked.complaints],
    }


@command.command(name="list")
@rules_option
@click.option("--all", "all_", is_flag=True, help="The built-in rules as well.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", help="Report format.")
def list_command(all_: bool, format_: str) -> None:
    """List the plug-ins in use: their rules, messages, causes and fixes."""
    from whichrank.flows.plugins.listing import listed

    rows, problems = listed(built_in=all_)
    if format_ == "json":
        document = {
            "schema_version": 1,
            "rules": [row._asdict() for row in rows],
            "problems": [{"path": problem.path, "message": problem.note} for problem in problems],
        }
        click.echo(json.dumps(document, indent=2))
        return
    for row in rows:
        click.echo(f"{row.kind:<9}  {row.id:<24}  {row.cause:<28}  {row.title}  [{row.origin}]".rstrip())
    for problem in problems:
        click.echo(f"left out: {problem.path}: {problem.note}", err=True)
    if not rows:
        click.echo("No plug-ins are in use. whichrank rules --help says how to add one.")

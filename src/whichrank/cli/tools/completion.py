"""Set up shell completion for bash, zsh and fish."""

from __future__ import annotations

import os

import click

from whichrank.flows.completion import SHELLS, install, shell_of


@click.command(
    epilog="\b\nExamples:\n"
    "  whichrank completion --install        for the shell you use\n"
    "  whichrank completion zsh --install\n"
    '  eval "$(whichrank completion bash)"   in this shell only'
)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--install", "wanted", is_flag=True, help="Write the script where the shell finds it.")
def command(shell: str | None, *, wanted: bool) -> None:
    """Print the script that completes whichrank's verbs and options, or install it.

    bash and zsh get one line in ~/.bashrc or ~/.zshrc; running it again changes nothing. Delete that line and the
    file that it names to undo it."""
    from click.shell_completion import get_completion_class

    from whichrank.cli.main import whichrank

    name = shell or shell_of(os.environ)
    made = get_completion_class(name)
    if made is None:
        raise click.UsageError(f"no completion for {name}")
    script = made(whichrank, {}, "whichrank", "_WHICHRANK_COMPLETE").source()
    if not wanted:
        click.echo(script)
        return
    done = install(name, script, os.environ)
    click.echo(f"wrote {done.script}")
    if done.startup is not None:
        click.echo(f"{'added a line to' if done.is_new else 'its line is already in'} {done.startup}")
    click.echo("It works in shells that you start from now on.")

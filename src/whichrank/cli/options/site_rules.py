"""The option of all verbs that judge: a folder with the site's own rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def _use(_ctx: click.Context, _parameter: click.Parameter, folders: tuple[Path, ...]) -> None:
    if folders:
        from whichrank.facts import site

        site.use(list(folders))


def rules_option(command: F) -> F:
    """Add `--rules`."""
    return click.option(
        "--rules",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        multiple=True,
        expose_value=False,
        callback=_use,
        help="A folder with rules, messages and fixes of your own (also WHICHRANK_RULES; see whichrank rules).",
    )(command)

"""What `rules list` does: everything that plug-ins add, with where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from whichrank.facts import messages, site, taxonomy
from whichrank.flows import explain
from whichrank.flows.plugins import run as plugins
from whichrank.model.errors import FactsError
from whichrank.model.evidence import Source


class Row(NamedTuple):
    kind: str
    """rule, message, cause or fix."""
    id: str
    cause: str
    title: str
    origin: str


def listed(*, built_in: bool) -> tuple[list[Row], list[Source]]:
    """What is in use, and what was left out."""
    rows = [_rule(code, cause, file, "built in") for code, cause, file in explain.built_in_rules()] if built_in else []
    for plugin in site.plugins():
        rows += _of(plugin)
    return rows, plugins.left_out()


def _of(plugin: site.Plugin) -> list[Row]:
    origin = str(plugin.folder) if plugin.origin in (site.VARIABLE, str(plugin.folder)) else plugin.origin
    files = set(plugin.rules())
    rows = [_rule(code, cause, file, origin) for code, cause, file in explain.rules() if file in files]
    for path in plugin.signatures():
        try:
            rows += [Row("message", s.id, s.cause, s.title, origin) for s in messages.read_signatures(path)]
        except FactsError:
            continue
    for name, columns in (("causes.csv", site.CAUSE_COLUMNS), ("fixes.csv", site.FIX_COLUMNS)):
        try:
            table = site.table(plugin.folder / name, columns)
        except FactsError:
            continue
        if name == "causes.csv":
            rows += [Row("cause", row["cause"], row["cause"], row["meaning"], origin) for row in table]
        else:
            rows += [
                Row("fix", "", row["cause"], row["fix"], origin) for row in table if row["cause"] in taxonomy.causes()
            ]
    return rows


def _rule(code: str, cause: str, file: Path, origin: str) -> Row:
    return Row("rule", code, cause, explain.page_of(code, cause, file).partition("\n")[0], origin)

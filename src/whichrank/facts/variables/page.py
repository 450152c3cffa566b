"""One variable as a page: since, until, default, values, when it is read, its cost, what is said of it."""

from __future__ import annotations

from typing import Any

from whichrank.facts.variables.environment import (
    Folklore,
    Variable,
    catalogue,
    folklore,
    outputs,
    renames,
    same_setting,
)


def page(name: str) -> dict[str, Any] | None:
    """The page of one variable, or None for a name that nobody reads or speaks of."""
    variable, lore = catalogue().get(name), folklore().get(name)
    if variable is None:
        return None if lore is None else _unread(lore)
    rename = renames().get(name)
    lines = [
        _sentence(variable.meaning),
        f"Read by: {variable.library}, {_span(variable)}.",
        f"Default: {variable.default or 'not established'}.",
        f"Values: {variable.allowed or 'not established'}.",
        f"When it is read: {variable.when_read if variable.when_read != 'unknown' else 'not established'}.",
        f"Across ranks: {'must be the same on every rank' if variable.must_match else 'may differ'}.",
        f"Cost and risk: {_sentence(variable.caution) if variable.caution else 'none known.'}",
    ]
    if (output := outputs().get(name)) is not None:
        who = " and ".join(output.launchers)
        lines.append(f"Under {who}: the launcher writes it for its ranks, whatever it held before.")
    if rename is not None:
        now = f"Renamed: {rename.new}" if rename.new else "Deprecated"
        lines.append(f"{now} since {_dotted(rename.since)}; the old name {_fate(rename.still_read)}.")
    if lore is not None:
        lines += [f"What is said: {_sentence(lore.says)}", f"What is true: {_sentence(lore.truth)}"]
    sources = [variable.source, *([lore.source] if lore else []), *([rename.source] if rename else [])]
    return {
        "kind": "variable",
        "id": name,
        "title": f"{name} ({variable.library})",
        "text": "\n".join(lines),
        "fix": _fix(variable, lore),
        "sources": list(dict.fromkeys(sources)),
    }


def _unread(lore: Folklore) -> dict[str, Any]:
    lines = [
        "Read by: nobody. Setting it changes nothing.",
        f"What is said: {_sentence(lore.says)}",
        f"What is true: {_sentence(lore.truth)}",
    ]
    return {
        "kind": "variable",
        "id": lore.name,
        "title": f"{lore.name} (read by no version)",
        "text": "\n".join(lines),
        "fix": [f"Remove it. Use instead: {lore.instead}."],
        "sources": [lore.source],
    }


def _span(variable: Variable) -> str:
    start = f"since {variable.since}" if variable.first else "since a release that was not established"
    if variable.since.startswith("<="):
        start = f"in {variable.since.removeprefix('<= ')} and probably earlier"
    return f"{start}, last in {variable.until}" if variable.until else f"{start}, still read by the newest release"


def _fix(variable: Variable, lore: Folklore | None) -> list[str]:
    rename = renames().get(variable.name)
    steps = []
    if rename is not None:
        instead = f"set {rename.new} instead" if rename.new else "leave it out"
        steps.append(f"From {_dotted(rename.since)} on, {instead}.")
    if lore is not None:
        steps.append(f"Use: {lore.instead}.")
    if (output := outputs().get(variable.name)) is not None and output.instead:
        steps.append(f"Use: {output.instead}.")
    if len(same_setting(variable.name)) > 1:
        steps.append("Set one of its names, not several: " + ", ".join(sorted(same_setting(variable.name))) + ".")
    return steps


def _fate(still_read: bool) -> str:
    return "is still read" if still_read else "is not read any more"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else text + "."

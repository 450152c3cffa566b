"""What was tried, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.evidence.readers.reports.outcomes import LIST_ITEM, NO_OUTCOME, any_of, outcome_of
from whichrank.evidence.readers.reports.prose import LONGEST_LINE
from whichrank.facts.interventions import interventions
from whichrank.records.trial import Outcome

_CLAUSE = re.compile(r"(?:,| but | however | whereas | while |;) ?", re.IGNORECASE)
_STATE = any_of(
    r"\b(?:is|are|was|were|inactive)\b", r"^(?:firewall|ufw|iptables|iommu|acs|vt-d)", r"^--(?:ipc|shm-size|cap-add)"
)
_THAN = any_of(
    r"\b(?:slower|longer|worse|less|lower|fewer|hang\w{0,3}|fail\w{0,3})\b[^.]{0,24}\bthan (?:\w{1,8} ){0,3}$"
)
"""Worse than with the change that follows."""
_UNLESS = any_of(r"\bunless (?:I |we |you )?(?:\w{1,12} ){0,3}[\"'`]?$")
"""It fails without the change that follows."""
_ONLY_LARGER = any_of(r"only\b[^.]{0,60}\b(?:multi|several|two|2|more|\d)")
"""It fails only in a larger job: it works in the smaller one."""
_UNDONE = any_of(r"\b(?:without|unset\w{0,4}|remov\w{1,3}|dropp\w{1,3}|delet\w{1,3}) (?:the )?[\"'`]?$")
_UNCHANGED = any_of(r"\W{0,3}(?:defaults?|base ?line|none|nothing|as (?:it )?is|unset|no change|unchanged|plain)\b")
_GOOD_CELL = any_of(r"\W{0,3}(?:ok|okay|works?|passe[sd]|pass|fine|yes|good|runs?|no (?:hang|error|crash))\b|[✓✔✅]")
_BAD_CELL = any_of(r"\W{0,3}(?:fail\w{0,3}|hangs?|hung|crash\w{0,2}|errors?|no|bad|stuck|timeout|dies|oom)\b|[✗✘❌]")
_OTHERS, _MOST_ITEMS = 3, 64
_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "seconds": 1.0, "min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0}
_TIMES = re.compile(
    r"(?<![\w.])((?:\d{1,6}(?:\.\d{1,3})?\s{0,2}[,/]\s{0,2}){0,12}\d{1,6}(?:\.\d{1,3})?)"
    r" ?(ms|s|sec|seconds|min|minutes|h|hours)\b",
    re.IGNORECASE,
)


_RELEASE = re.compile(r"(?<![\d.])2\.\d{1,2}\.\d{1,2}(?!\d)")
_PART = re.compile(r"[;,()]| but | whereas | while | and ", re.IGNORECASE)
_WORKS = any_of(
    r"\b(?:work(?:s|ed|ing)?|ok|okay|fine|pass(?:es|ed)?|good|correct|unaffected"
    r"|no (?:hang|issue|problem|error|crash)\w{0,2})\b"
)
_FAILS = any_of(
    r"\b(?:fail\w{0,3}|hangs?|hung|broken|wrong|crash\w{0,3}|errors?|stuck|segfaults?|regress\w{0,4}|affected)\b"
    r"|\b(?:not|n[’']t|never) (?:work|ok|pass|run)"
)


def tried(text: str, heading: Outcome = "unknown") -> list[tuple[str, Outcome]]:
    """The changes of a sentence with what came of each: by its clause, the next, the one before, or the heading."""
    lower = text.lower()
    changes = [change for change in interventions().values() if any(map(lower.__contains__, change.words))]
    if not changes:
        return []
    clauses = [part for part in _CLAUSE.split(text) if part.strip()]
    spoken = [
        (number, change.change, match[0])
        for number, clause in enumerate(clauses)
        for change in changes
        if (match := change.within(clause)) and not _UNDONE.search(clause[: match.start()])
    ]
    if not spoken:
        return []
    outcomes = [outcome_of(clause) for clause in clauses]
    if NO_OUTCOME.search(text.strip()):
        outcomes = ["unknown"] * len(clauses)
    found: dict[str, Outcome] = {}
    for number, name, words in spoken:
        near = [outcomes[number], *outcomes[number + 1 :], *reversed(outcomes[:number]), heading]
        outcome: Outcome = next((o for o in near if o != "unknown"), "unknown")
        before = clauses[number][: clauses[number].find(words)]
        if _THAN.search(before) or _UNLESS.search(before) or _ONLY_LARGER.match(words):
            outcome = "helped"
        if _STATE.search(words) and outcomes[number] == "unknown" and not NO_OUTCOME.search(text):
            outcome = "did not help"  # it is so, and the job fails all the same
        if found.get(name, "unknown") == "unknown":
            found[name] = outcome
    return list(found.items())


def by_version(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say of one release of NCCL that it works, where others say of another one that it does not."""
    good: dict[str, tuple[int, str]] = {}
    bad: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_LINE or "ccl" not in line.lower():
            continue
        told = [(set(_RELEASE.findall(part)), _outcome(part)) for part in _PART.split(line)]
        told = [(releases, outcome) for releases, outcome in told if releases]
        outcomes = {outcome for _, outcome in told}
        for releases, outcome in told:
            contrast = outcome is None and len(told) == len(outcomes) == 2 and True in outcomes
            if outcome:
                good |= dict.fromkeys(releases, (number, line.strip()))
            elif outcome is False or contrast:
                bad |= releases
    if bad and good.keys() - bad:
        yield from (place for release, place in good.items() if release not in bad)


def _outcome(words: str) -> bool | None:
    """Whether it is said to work, or not to; None where neither is said, or both."""
    works, fails = _WORKS.search(words) is not None, _FAILS.search(words) is not None
    return works if works != fails else None


def faster_items(text: str) -> set[int]:
    """Lines of lists of trials with a time each (`num_workers=8: 44 min`) where it took half as long or less."""
    faster: set[int] = set()
    block: list[tuple[int, list[float]]] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if LIST_ITEM.match(line) and len(line) <= LONGEST_LINE:
            block.append((number, _seconds(line)))
        elif not line.startswith((" ", "\t")):
            for at, took in block if len(block) <= _MOST_ITEMS else ():
                others = [value for other, values in block if other != at for value in values]
                if took and len(others) >= _OTHERS and 2 * max(took) <= min(others):
                    faster.add(at)
            block = []
    return faster


def _seconds(line: str) -> list[float]:
    """The times in a line, a unit behind the last of a list counting for all: `47, 45, 44 min`."""
    return [
        float(value) * _UNITS[match[2].lower()]
        for match in _TIMES.finditer(line)
        for value in match[1].replace("/", ",").split(",")
    ]


def tabled(text: str) -> Iterator[tuple[int, str, str, Outcome]]:
    """Line, row, change and outcome of tables with a change per row, where the row without one tells what fails."""
    table: list[tuple[int, str]] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.lstrip().startswith("|") and len(line) <= LONGEST_LINE:
            table.append((number, line.strip()))
        elif table:
            yield from _of_table(table)
            table = []


def _of_table(table: list[tuple[int, str]]) -> Iterator[tuple[int, str, str, Outcome]]:
    rows = [(number, line, [cell.strip() for cell in line.strip("|").split("|")]) for number, line in table]
    plain = next((cells for _, _, cells in rows if _UNCHANGED.match(cells[0])), [])
    failing = [column for column, cell in enumerate(plain) if column and _BAD_CELL.match(cell)]
    for number, line, cells in rows:
        outcomes = {_good_or_bad(cells[column]) for column in failing if column < len(cells)}
        outcome = outcomes.pop() if len(outcomes) == 1 else "unknown"
        if outcome != "unknown":
            changes = (change.change for change in interventions().values() if change.within(cells[0]))
            yield from ((number, line, change, outcome) for change in changes)


def _good_or_bad(cell: str) -> Outcome:
    return "helped" if _GOOD_CELL.match(cell) else "did not help" if _BAD_CELL.match(cell) else "unknown"

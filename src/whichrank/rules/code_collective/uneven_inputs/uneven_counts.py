"""Some ranks say that they have less to read than the others, and the job hangs.

## What it finds
Ranks whose own output names fewer batches or samples than that of the others.

## Why it happens
Shards of different size, a filter on local data, a lost file: the ranks with fewer batches leave the loop first, and
the others wait for them in the next collective.

## How it decides
By what ranks say of themselves in the same words (`rank 5: 1011 batches`, `num_batches=1011`), the first time each of
them does. At least three ranks say it, most of them the same, the others less; and the job stands still. It is surer
where the structure of the failure points at the same ranks.

## Example
    rank 4: 1024 batches in this epoch
    rank 5: 1011 batches in this epoch

## Limits
Needs a script that says it, with the rank in the line or the file.
"""

from __future__ import annotations

import re
from collections import Counter

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import reported_mismatches
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.known_messages import Seen

CODE = "COLL136"
CAUSE = "uneven-inputs"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=fix(CAUSE),
    alternatives=(("conditional-collective", "a rank may have taken another path"),),
)
_SPEAKERS = 3
_NAMES = re.compile(r"(?i:\brank[ =:#]{0,2}(\d{1,6})\b)")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    if not case.stands_still:
        return []
    told: dict[str, dict[int, Seen]] = {}
    for s in known_messages.seen(case, "says-input-count"):
        rank = s.sign.rank if s.sign.rank is not None else _own_name(s.sign.ref.quote)
        if rank is not None:
            told.setdefault(s.group("unit").lower() or s.group("named").lower(), {}).setdefault(rank, s)
    for ranks in told.values():
        fewer = _fewer({rank: _count(s) for rank, s in ranks.items()})
        if fewer:
            return [_finding(case, ranks, fewer)]
    return []


def _own_name(line: str) -> int | None:
    """The rank that a line without a telling prefix names, if it names one."""
    names = set(_NAMES.findall(line))
    return int(names.pop()) if len(names) == 1 else None


def _count(s: Seen) -> int:
    return int(s.group("count") or s.group("value"))


def _fewer(counts: dict[int, int]) -> tuple[int, ...]:
    """The ranks below the number that most of them have; nobody where there is no such number or some have more."""
    usual, how_many = Counter(counts.values()).most_common(1)[0] if counts else (0, 0)
    odd = tuple(sorted(rank for rank, count in counts.items() if count != usual))
    if len(counts) < _SPEAKERS or 2 * how_many <= len(counts) or any(counts[rank] > usual for rank in odd):
        return ()
    return odd


def _parted(case: Case) -> list[set[int]]:
    """The ranks at which the structure of the failure points."""
    return [set(case.first_to_fail), *(set(found.ranks) for found in reported_mismatches.mismatches(case))]


def _finding(case: Case, said: dict[int, Seen], fewer: tuple[int, ...]) -> Finding:
    usual = next(s for rank, s in sorted(said.items()) if rank not in fewer)
    signs = [*(said[rank].sign for rank in fewer), usual.sign]
    sure = Grade.PROVES if set(fewer) in _parted(case) else Grade.SUPPORTS
    name = wording.ranks_text(fewer).capitalize()
    message = f"{name} had {_count(said[fewer[0]])} to read where the others had {_count(usual)}, and ran out first."
    return building.found(case, _CLAIM, signs, message, sure, fewer)

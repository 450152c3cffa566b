"""What the rules on mismatched collectives share where guards have written down every call."""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import guard_findings
from whichrank.timeline.case import Case
from whichrank.timeline.guard.wrong import Wrong


def judge(case: Case, code: str, cause: str, aspect: str, fix: str) -> list[Finding] | NotEvaluated:
    """Calls whose first difference is this aspect."""
    found = guard_findings.wrongs(case, "signature")
    if isinstance(found, NotEvaluated):
        return found
    return [_finding(case, wrong, code, cause, fix) for wrong in found if wrong.tensor == aspect]


def _finding(case: Case, wrong: Wrong, code: str, cause: str, fix: str) -> Finding:
    op, what = wrong.detail["op"], wrong.detail["aspect"]
    mine = " / ".join(sorted({value for rank, value in wrong.values.items() if rank in wrong.odd}))
    theirs = " / ".join(sorted({value for rank, value in wrong.values.items() if rank not in wrong.odd}))
    number = wrong.detail["call"]
    call = f"{op}, call {number} of group {wrong.module} (step {wrong.step})"
    if wrong.odd:
        message = f"{guard_findings.who(wrong)} brought {what} {mine} to {call}; the others brought {theirs}."
    else:
        message = f"{guard_findings.who(wrong)} brought different {what} to {call}: {theirs}."
    places = dict.fromkeys([str(wrong.detail["place"]), *(str(at) for at in wrong.detail["at"].values())])
    return guard_findings.found(
        case, wrong, code, cause, message, Grade.PROVES, (fix, guard_findings.go_back(case, wrong)),
        places=list(places)[:2],
    )  # fmt: skip

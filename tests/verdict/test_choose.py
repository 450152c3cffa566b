"""Which finding becomes the verdict, and what becomes of the others."""

from __future__ import annotations

from itertools import permutations

import pytest

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, Subject
from whichrank.model.verdict import Argument
from whichrank.verdict.choose import choose

SECOND = 1_000_000_000
PROVES, SUPPORTS, HINTS = Grade.PROVES, Grade.SUPPORTS, Grade.HINTS


def finding(
    cause, ranks, grade, *, category="hang", victims=(), onset=None, severity="error", alternatives=(), kind="messages"
):
    return Finding(
        code="TEST1",
        cause=cause,
        category=category,
        severity=severity,
        grade=grade,
        kind=kind,
        subject=Subject(ranks=tuple(ranks)),
        message=f"{cause} of {ranks}",
        evidence=(Ref("file", "line 1", "words"),),
        victims=tuple(victims),
        onset_ns=onset,
        alternatives=tuple(alternatives),
    )


def chosen(*findings):
    return choose(findings, looked_at="the evidence", silence=0.8)


def test_a_reason_beats_the_bare_statement_that_a_rank_did_not_come():
    bare = finding("collective-desync", [1], SUPPORTS, victims=[0, 2])
    reason = finding("rank-stuck-in-data-loading", [1], SUPPORTS, victims=[0, 2])
    choice = chosen(bare, reason)
    assert choice.verdict.cause == "rank-stuck-in-data-loading"
    assert choice.consequence_of == {1: (0,)}
    assert choice.incidents == ()


def test_a_crash_explains_the_hang_of_the_others():
    hang = finding("collective-desync", [3], SUPPORTS, victims=[0, 1, 2], onset=9 * SECOND)
    crash = finding("gpu-out-of-memory", [3], PROVES, category="crash", onset=8 * SECOND)
    assert chosen(hang, crash).verdict.cause == "gpu-out-of-memory"


def test_how_a_hang_was_ended_is_not_its_cause():
    hang = finding("conditional-collective", [2], SUPPORTS, victims=[0, 1], onset=1 * SECOND)
    end = finding("job-ended-from-outside", [], PROVES, category="crash", severity="warning", onset=600 * SECOND)
    choice = chosen(end, hang)
    assert choice.verdict.cause == "conditional-collective"
    assert choice.incidents == ()


def test_of_two_explicit_causes_the_clearly_earlier_is_the_root():
    late = finding("rank-exception", [5], PROVES, category="crash", onset=100 * SECOND)
    early = finding("cuda-device-assert", [2], PROVES, category="crash", victims=[5], onset=90 * SECOND)
    assert chosen(late, early).verdict.cause == "cuda-device-assert"


def test_a_second_fault_of_other_ranks_is_an_incident_of_its_own():
    one = finding("conditional-collective", [2], PROVES, victims=[0, 1])
    two = finding("size-mismatch", [7], PROVES, category="corruption")
    choice = chosen(one, two)
    assert [incident.cause for incident in choice.incidents] == ["size-mismatch"]


def test_confidences_add_up_to_at_most_one_and_three_alternatives_are_enough():
    others = [Alternative(cause, "why") for cause in ("firewall", "uneven-inputs", "straggler", "disk-full")]
    verdict = chosen(finding("collective-order", [1], SUPPORTS, alternatives=others)).verdict
    assert len(verdict.alternatives) <= 3
    assert verdict.confidence + sum(a.confidence for a in verdict.alternatives) <= 1.0


def test_silence_is_healthy_only_where_there_was_enough_to_look_at():
    assert choose([], looked_at="four dumps", silence=0.8).verdict.cause == "healthy"
    nothing = choose([], looked_at="", silence=0.0).verdict
    assert (nothing.cause, nothing.category) == ("unknown", "unknown")


def test_what_is_only_worth_knowing_makes_no_verdict():
    assert chosen(finding("straggler", [1], PROVES, category="slow", severity="info")).verdict.cause == "healthy"


def test_why_a_rank_is_late_beats_that_it_is():
    late = finding("straggler", (1,), PROVES, category="slow", severity="warning")
    hot = finding("gpu-thermal-or-power", (1,), SUPPORTS, category="slow", severity="warning")
    other = finding("gpu-thermal-or-power", (2,), SUPPORTS, category="slow", severity="warning")
    assert choose([late, hot], looked_at="", silence=0.8).verdict.cause == "gpu-thermal-or-power"
    assert choose([late, other], looked_at="", silence=0.8).verdict.cause == "straggler"


def test_a_slow_job_that_somebody_cancelled_is_slow():
    late = finding("straggler", (1,), SUPPORTS, category="slow", severity="warning")
    hot = finding("gpu-thermal-or-power", (1,), SUPPORTS, category="slow", severity="warning")
    end = finding("job-ended-from-outside", [], PROVES, category="crash", severity="warning")
    assert chosen(end, late, hot).verdict.cause == "gpu-thermal-or-power"
    assert chosen(end, hot).verdict.cause == "job-ended-from-outside"
    assert chosen(end, late).verdict.cause == "job-ended-from-outside"


def test_the_order_of_the_findings_does_not_matter():
    several = [
        finding("rank-exception", [5], PROVES, category="crash", onset=100 * SECOND),
        finding("cuda-device-assert", [2], PROVES, category="crash", victims=[5], onset=90 * SECOND),
        finding("ecc-error", [1], SUPPORTS, category="crash", onset=80 * SECOND),
        finding("collective-desync", [3], PROVES, victims=[0, 1], onset=95 * SECOND),
        finding("straggler", [1], PROVES, category="slow"),
        finding("disk-full", [1], SUPPORTS, category="crash", onset=80 * SECOND),
    ]
    told = {
        (choice.verdict.cause, tuple(f.cause for f in choice.findings), tuple(v.cause for v in choice.incidents))
        for order in permutations(several)
        if (choice := chosen(*order))
    }
    assert len(told) == 1


def test_what_the_state_of_the_job_contradicts_is_out():
    port = finding("port-in-use", [], PROVES, category="crash")
    late = finding("straggler", [1], SUPPORTS, category="slow")
    finished = Ref("job.log", "line 90", "training finished")

    def fit(f):
        return Argument("", Grade.CONTRADICTS, None, "the run finished", (finished,)) if f.category == "crash" else None

    alone = choose([port], looked_at="", silence=0.0, fit=fit, finished=finished)
    assert (alone.verdict.cause, alone.findings[0].severity) == ("healthy", "info")
    assert alone.hypotheses[0].arguments_against[0].says == "the run finished"
    assert choose([port, late], looked_at="", silence=0.0, fit=fit, finished=finished).verdict.cause == "straggler"


def test_of_two_findings_of_one_cause_the_one_that_says_who_is_told():
    nobody = finding("nvlink-fault", [], PROVES, category="crash")
    named = finding("nvlink-fault", [2], SUPPORTS, category="crash")
    unsure = finding("nvlink-fault", [3], HINTS, category="crash")
    assert chosen(nobody, named, unsure).verdict.culprits.ranks == (2,)
    assert chosen(nobody, unsure).verdict.culprits.ranks == ()


def test_output_that_ends_in_the_midst_of_work_is_healthy_unless_something_was_found():
    at_work = Ref("job.log", "line 90", "step 90 loss 1.2")
    told = choose([], looked_at="", silence=0.0, working=at_work).verdict
    assert (told.category, "step 90" in told.summary) == ("healthy", True)
    fault = finding("disk-full", [1], SUPPORTS, category="crash")
    assert choose([fault], looked_at="", silence=0.0, working=at_work).verdict.cause == "disk-full"
    assert choose([], looked_at="", silence=0.0, working=at_work, observed="hang").verdict.category == "hang"


def test_other_kinds_of_evidence_make_a_hypothesis_surer_and_the_same_kind_does_not():
    dumps = finding("conditional-collective", [2], SUPPORTS, kind="records")
    stack = finding("conditional-collective", [], SUPPORTS, kind="stacks")
    again = finding("conditional-collective", [2], HINTS, kind="records")
    other = finding("conditional-collective", [5], SUPPORTS, kind="stacks")
    alone = chosen(dumps).verdict
    both = chosen(stack, dumps).verdict
    assert (both.culprits.ranks, both.confidence > alone.confidence) == ((2,), True)
    assert chosen(dumps, again).verdict.confidence == alone.confidence
    assert all(incident.confidence <= alone.confidence for incident in chosen(dumps, other).incidents)


def test_why_shows_the_grade_and_the_kind_of_each_finding():
    (told,) = chosen(finding("disk-full", [1], PROVES, kind="host")).hypotheses
    assert [(each.grade, each.kind) for each in told.arguments_for] == [(PROVES, "host")]


def test_a_driver_explains_only_the_ranks_of_its_own_that_see_no_gpu():
    unseen = finding("device-ordinal", [4, 5], PROVES, category="crash", onset=1)
    assert (
        chosen(unseen, finding("driver-mismatch", [4, 5], PROVES, category="crash")).verdict.cause == "driver-mismatch"
    )
    assert chosen(unseen, finding("driver-mismatch", [0], PROVES, category="crash")).verdict.cause == "device-ordinal"
    assert chosen(unseen, finding("driver-mismatch", [4, 5], HINTS, category="crash")).verdict.cause == "device-ordinal"


@pytest.mark.parametrize(("complained", "sure"), [(None, 0.85), ("slow", 0.85), ("hang", 0.6), ("crash", 0.6)])
def test_a_run_that_finished_while_somebody_says_that_it_does_not(complained, sure):
    finished = Ref("job.log", "line 9", "done")
    verdict = choose([], looked_at="", silence=0.0, finished=finished, complained=complained).verdict
    assert (verdict.category, verdict.confidence) == ("healthy", sure)

"""The output of a job that was watched holds the report on it."""

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.findings import Grade, Subject
from whichrank.model.verdict import Verdict
from whichrank.run.watch.run_record import _in_a_line

REPORT = """\
Rank 0 alone called all_reduce_barrier #22 of default_pg at train.py:18 in log_rate.
HANG · rank0-only-collective · 76 % sure · 6 ranks

PROOF
  rank_3.error.txt, line 4
    > RuntimeError: CUDA error: an illegal memory access was encountered

IT COULD ALSO BE
  40 %  straggler: Rank 2 is late over 40 operations
"""
END = "whichrank: the evidence, verdict.json and report.md are in /home/u/out/7\n"


def judged(tmp_path, *texts_of_files: str):
    files = {f"job{number}.log": text for number, text in enumerate(texts_of_files)}
    return diagnose([texts.write(tmp_path, files)], jobs=1)


def line(cause: str, *ranks: int, hosts: tuple[str, ...] = (), category: str = "hang") -> str:
    told = Verdict(category, cause, Subject(ranks=ranks, hosts=hosts), (), 0.76, "")
    return f"whichrank: the verdict: {_in_a_line(told)}\n"


@pytest.mark.parametrize("end", [END, ""])
def test_the_verdict_of_the_watcher_counts_and_what_it_quotes_does_not(tmp_path, end):
    diagnosis = judged(tmp_path, texts.steps(30) + line("rank0-only-collective", 0) + REPORT + end)
    verdict = diagnosis.verdict
    assert (verdict.category, verdict.cause, verdict.culprits.ranks) == ("hang", "rank0-only-collective", (0,))
    assert diagnosis.findings[0].grade is Grade.SUPPORTS
    assert {f.code for f in diagnosis.findings} == {"CODE203"}
    if end:
        assert diagnosis.next[0].command == "whichrank diagnose /home/u/out/7"


def test_without_its_mark_the_same_text_is_evidence(tmp_path):
    assert judged(tmp_path, REPORT + END).verdict.cause == "cuda-illegal-access"


@pytest.mark.parametrize(
    ("ranks", "hosts", "named"),
    [((3,), (), (3,)), ((0, 1, 5), (), (0, 1, 5)), ((), ("node7",), ()), ((), (), ()), (tuple(range(40)), (), ())],
)
def test_whoever_is_named(tmp_path, ranks, hosts, named):
    verdict = judged(tmp_path, line("straggler", *ranks, hosts=hosts, category="slow") + REPORT + END).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("straggler", named)


def test_the_last_attempt_counts_and_what_came_after_it(tmp_path):
    first, second = line("rank0-only-collective", 0) + REPORT + END, line("rank-killed", 2, category="crash") + END
    assert judged(tmp_path, first + texts.steps(20) + second).verdict.culprits.ranks == (2,)
    later = texts.steps(20) + texts.traceback("KeyError: 'labels'")
    assert "CODE101" in {f.code for f in judged(tmp_path, first + later).findings}


@pytest.mark.parametrize("cause", ["healthy", "unknown", "no-such-cause"])
def test_what_says_nothing_is_no_verdict(tmp_path, cause):
    assert judged(tmp_path, line(cause) + END).verdict.culprits == Subject()

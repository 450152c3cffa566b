"""Which rules are asked about a case, and that those which are not would have had nothing to say."""

from __future__ import annotations

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.discovery import ROWS, discover_rules, rules_for, unmet
from whichrank.model.findings import NotEvaluated
from whichrank.timeline.case import Case


def answers(case):
    asked, known = rules_for(case)
    return {rule.CODE for rule in asked}, {one.code: one.missing for one in known}


@pytest.fixture
def logs(tmp_path):
    said = texts.traceback("RuntimeError: CUDA out of memory")
    return texts.case_of(texts.write(tmp_path / "logs", texts.ranks(4, {2: said}, texts.TIMED_OUT.format(0))))


@pytest.mark.parametrize("kind", ["nothing", "dumps", "logs"])
def test_rules_that_are_not_asked_would_have_said_the_same(kind, example, logs):
    case = {"nothing": Case(), "dumps": texts.case_of(example), "logs": logs}[kind]
    asked, known = answers(case)
    everything = {rule.CODE: rule for rule in discover_rules()}
    assert asked.isdisjoint(known)
    assert asked | known.keys() == everything.keys()
    for code, missing in known.items():
        assert everything[code].judge(case) == NotEvaluated(missing), code


def test_with_dumps_alone_most_rules_are_not_loaded(example):
    asked, known = answers(texts.case_of(example))
    assert "COLL101" in asked
    assert len(known) > 100


def test_a_rule_that_is_not_written_down_is_asked(example, monkeypatch):
    case = texts.case_of(example)
    _, known = answers(case)
    code = next(row.code for row in unmet() if row.code in known and row.module != ROWS)
    of_rows = next(row.code for row in unmet() if row.code in known and row.module == ROWS)
    rest = tuple(row for row in unmet() if row.code not in (code, of_rows))
    monkeypatch.setattr("whichrank.flows.discovery.unmet", lambda: rest)
    asked, _ = answers(case)
    assert {code, of_rows} <= asked

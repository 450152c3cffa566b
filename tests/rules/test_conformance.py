"""Every rule keeps the contract: a code of its own, a cause, a page, and "not evaluated" when there is nothing."""

from __future__ import annotations

import re
from collections import defaultdict
from types import ModuleType

from tests.each import over
from whichrank.facts.fixes import with_fix
from whichrank.facts.taxonomy import causes
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.discovery import discover_rules
from whichrank.model.findings import NotEvaluated
from whichrank.report import text
from whichrank.timeline.case import Case

RULES = discover_rules()
SECTIONS = ("What it finds", "Why it happens", "How it decides", "Example", "Fix", "Limits")

each_rule = over([(rule,) for rule in RULES], lambda rule: rule.CODE)


def family(rule: ModuleType) -> str:
    return rule.__name__.split(".")[2]


def test_there_are_rules() -> None:
    assert len(RULES) > 12


def test_codes_are_never_shared() -> None:
    codes = [rule.CODE for rule in RULES]
    assert len(codes) == len(set(codes))


def test_a_prefix_belongs_to_one_family() -> None:
    families = defaultdict(set)
    for rule in RULES:
        assert re.fullmatch(r"[A-Z]{3,4}\d{3}", rule.CODE)
        families[rule.CODE[:-3]].add(family(rule))
    assert {prefix: found for prefix, found in families.items() if len(found) > 1} == {}


@each_rule
def test_the_cause_is_in_the_taxonomy(rule: ModuleType) -> None:
    assert rule.CAUSE in causes()


@each_rule
def test_the_page_is_whole(rule: ModuleType) -> None:
    page = with_fix(rule.__doc__ or "", rule.CAUSE)
    title = page.partition("\n")[0]
    assert title.endswith(".")
    at = [re.search(rf"^(## {section}$|{section}\b[^.:\n]*:)", page, re.MULTILINE) for section in SECTIONS]
    assert all(at), [section for section, found in zip(SECTIONS, at, strict=True) if not found]
    places = [found.start() for found in at if found]
    assert places == sorted(places)


@each_rule
def test_without_evidence_nothing_is_evaluated(rule: ModuleType) -> None:
    answer = rule.judge(Case())
    assert isinstance(answer, NotEvaluated)
    assert answer.missing


def test_a_defect_of_a_rule_costs_no_verdict(example, monkeypatch):
    def broken(_case):
        raise KeyError("nobody thought of this")

    monkeypatch.delenv("WHICHRANK_DEBUG")
    whole = diagnose([example], jobs=1)
    monkeypatch.setattr(next(rule for rule in discover_rules() if rule.CODE == "COLL105"), "judge", broken)
    told = diagnose([example], jobs=1)
    assert told.verdict == whole.verdict
    assert [s.missing for s in told.coverage.not_evaluated if s.code == "COLL105"] == [
        "an answer of the rule, which has a defect (KeyError: 'nobody thought of this')"
    ]
    assert "failed by a bug in whichrank: COLL105;" in "".join(text.render(told))

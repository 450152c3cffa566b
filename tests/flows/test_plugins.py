"""Plug-ins of a site: used as documented, checked before use, and never able to cost the built-in verdict."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from whichrank.facts import messages, site
from whichrank.facts.safe_patterns import complaint
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.explain import explain
from whichrank.flows.plugins import run as plugins
from whichrank.flows.plugins.check import check
from whichrank.flows.plugins.listing import listed
from whichrank.model.findings import Grade

EXAMPLE = ROOT / "examples" / "plugin"
RULE = "rules/lease_lost.py"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A copy of the documented plug-in."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "plugin"))


@pytest.fixture
def used(plugin: Path, monkeypatch):
    """The same, in use."""
    monkeypatch.setenv(site.VARIABLE, str(plugin))
    site.forget()
    yield plugin
    monkeypatch.delenv(site.VARIABLE)
    site.forget()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def kinds(folder: Path) -> set[str]:
    return {found.kind for found in check(folder).complaints}


# -- the documented example


def test_the_example_passes_its_check() -> None:
    checked = check(EXAMPLE)
    assert checked.complaints == ()
    assert (checked.rules, len(checked.signatures), checked.fixes) == (("ACME101",), 3, 2)


def test_a_rule_of_a_site_gives_the_verdict(used: Path) -> None:
    told = diagnose([used / "examples/ACME101/fires"], jobs=1).verdict
    assert (told.cause, told.category, told.culprits.ranks) == ("acme-lease-lost", "hang", (3,))
    assert told.fix[0].startswith("Renew the lease on the named host: acme-storage renew")
    clear = diagnose([used / "examples/ACME101/clear"], jobs=1)
    assert clear.verdict.cause != "acme-lease-lost"
    assert "ACME101" in clear.coverage.clear


def test_a_message_of_a_site_gives_the_verdict(used: Path, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("acme-storage: quota exceeded for project llm7 (limit 200 TiB)\n")
    told = diagnose([tmp_path / "job.log"], jobs=1)
    assert (told.verdict.cause, told.verdict.culprits.ranks) == ("acme-quota", ())
    assert told.findings[0].grade is Grade.PROVES


def test_a_fix_of_a_site_stands_first(used: Path, tmp_path: Path) -> None:
    (tmp_path / "dmesg.log").write_text(
        "[ 100.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=4321, name=python, GPU has fallen off the bus.\n"
    )
    told = diagnose([tmp_path / "dmesg.log"], jobs=1).verdict
    assert told.cause == "gpu-fell-off-bus"
    assert told.fix[0].startswith("At Acme: drain the node")


def test_it_is_explained_and_listed(used: Path) -> None:
    assert explain("ACME101")[0].id == "ACME101"
    assert explain("acme-quota")[0].kind == "cause"
    rows, left_out = listed(built_in=False)
    assert [row.id for row in rows if row.kind == "rule"] == ["ACME101"]
    assert left_out == []


def test_the_command_line(whichrank, plugin: Path, tmp_path: Path) -> None:
    told = whichrank("diagnose", "--rules", plugin, plugin / "examples/ACME101/fires", "--format", "json")
    assert json.loads(told.stdout)["verdict"]["cause"] == "acme-lease-lost", told.stderr
    assert whichrank("rules", "check", plugin).returncode == 0
    edit(plugin / RULE, "def judge(case):", "def judge(case:")
    checked = whichrank("rules", "check", plugin, "--format", "json")
    assert checked.returncode == 1
    assert [p["kind"] for p in json.loads(checked.stdout)["problems"]] == ["syntax"]


def test_a_package_brings_its_plugin(whichrank_process, plugin: Path, tmp_path: Path) -> None:
    site_packages = tmp_path / "site"
    shutil.copytree(plugin, site_packages / "acme_whichrank")
    (site_packages / "acme_whichrank" / "__init__.py").write_text("raise SystemExit('never imported')\n")
    info = site_packages / "acme-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[whichrank.rules]\nacme = acme_whichrank\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    told = whichrank_process("rules", "list", PYTHONPATH=f"{ROOT / 'src'}:{site_packages}")
    assert "ACME101" in told.stdout, told.stderr
    assert "[package acme]" in told.stdout


# -- broken ones


def broken_syntax(folder: Path) -> None:
    edit(folder / RULE, "def judge(case):", "def judge(case:")


def broken_page(folder: Path) -> None:
    edit(folder / RULE, "## Limits", "Limits, somehow")


def no_metadata(folder: Path) -> None:
    edit(folder / RULE, 'CODE = "ACME101"', "")


def clashing_code(folder: Path) -> None:
    edit(folder / RULE, 'CODE = "ACME101"', 'CODE = "COLL101"')


def invalid_pattern(folder: Path) -> None:
    edit(folder / "signatures/acme.ini", r"(?P<project>\w{1,40})", r"(?P<project>\w{1,40}")


def catastrophic_pattern(folder: Path) -> None:
    edit(folder / "signatures/acme.ini", r"(?P<project>\w{1,40})", r"(?P<project>(\w+)+)!")


def unknown_cause(folder: Path) -> None:
    edit(folder / RULE, 'CAUSE = "acme-lease-lost"', 'CAUSE = "acme-lease-lots"')


def unknown_cause_of_a_message(folder: Path) -> None:
    edit(folder / "signatures/acme.ini", "cause = acme-quota", "cause = acme-qouta")


def silent_example(folder: Path) -> None:
    shutil.copytree(folder / "examples/ACME101/clear", folder / "examples/ACME101/fires", dirs_exist_ok=True)


def wrong_example(folder: Path) -> None:
    edit(
        folder / "signatures/acme.ini",
        "example = acme-storage: quota exceeded for project",
        "example = acme-storage: quota for",
    )


def false_alarm(folder: Path) -> None:
    shutil.copytree(folder / "examples/ACME101/fires", folder / "examples/ACME101/clear", dirs_exist_ok=True)


def raises(folder: Path) -> None:
    edit(
        folder / RULE,
        "    if not statements.heard(case):",
        "    case.no_such_thing\n    if not statements.heard(case):",
    )


def half_a_table(folder: Path) -> None:
    edit(folder / "causes.csv", "cause,family", "name,family")


@pytest.mark.parametrize(
    ("break_it", "kind"),
    [
        (broken_syntax, "syntax"), (broken_page, "page"), (no_metadata, "page"), (clashing_code, "code"),
        (invalid_pattern, "pattern"), (catastrophic_pattern, "pattern"), (unknown_cause, "cause"),
        (unknown_cause_of_a_message, "cause"), (silent_example, "example"), (wrong_example, "example"),
        (false_alarm, "example"), (raises, "rule"), (half_a_table, "table"),
    ],
)  # fmt: skip
def test_the_check_rejects(plugin: Path, break_it, kind: str) -> None:
    break_it(plugin)
    assert kind in kinds(plugin)


@pytest.mark.parametrize("break_it", [broken_syntax, clashing_code, catastrophic_pattern, raises, half_a_table])
def test_a_broken_plugin_costs_no_verdict(used: Path, example: Path, break_it) -> None:
    break_it(used)
    site.forget()
    told = diagnose([example], jobs=1)
    assert (told.verdict.cause, told.verdict.culprits.ranks) == ("conditional-collective", (2,))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise SystemExit(3)", "SystemExit"),
        ("import os; os._exit(3)", "ended the process"),
        ("while True: pass", "took longer than"),
        ("return 'yes'", "judge must return"),
    ],
)
def test_a_rule_that_misbehaves_is_not_evaluated(used: Path, example: Path, monkeypatch, body: str, why: str) -> None:
    monkeypatch.setattr(plugins, "LIMIT_S", 1.0)
    edit(used / RULE, "    if not statements.heard(case):", f"    {body}\n    if not statements.heard(case):")
    begun = time.monotonic()
    told = diagnose([example], jobs=1)
    assert time.monotonic() - begun < 30
    assert told.verdict.cause == "conditional-collective"
    assert [why in skipped.missing for skipped in told.coverage.not_evaluated if skipped.code == "ACME101"] == [True]


def test_what_is_left_out_is_told(used: Path, example: Path) -> None:
    invalid_pattern(used)
    site.forget()
    told = diagnose([example], jobs=1)
    assert [s.path for s in told.coverage.sources if s.reader == "plug-in"] == [str(used / "signatures/acme.ini")]


def test_a_folder_that_anyone_may_write_to_is_not_used(used: Path, example: Path) -> None:
    used.chmod(0o777)
    site.forget()
    told = diagnose([example], jobs=1)
    assert "ACME101" not in told.coverage.clear
    assert any("anyone may write" in source.note for source in told.coverage.sources)


# -- patterns


@pytest.mark.parametrize(
    "pattern", [r"(a+)+b", r"(a|ab)*c", r"(?:x.*)*y", r"a.*b.*c.*d.*e", r"(", r"(\w+\s?)*$", r"(a*){2,30}"]
)
def test_patterns_that_are_refused(pattern: str) -> None:
    assert complaint(pattern)


@pytest.mark.parametrize(
    "pattern", [r"error \d{1,4} on (\S{1,60})", r"x.*y.*z", r"(?:\d{1,3}\.){3}\d{1,3}", r"(?:ab)*", r"a|b|cd"]
)
def test_patterns_that_are_accepted(pattern: str) -> None:
    assert complaint(pattern) == ""


def test_nearly_all_built_in_patterns_would_pass() -> None:
    refused = [s.id for s in messages.built_in().values() if complaint(s.pattern)]
    assert len(refused) <= 5, refused

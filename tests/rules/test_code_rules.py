"""Rules on code keep their contract, fire on their example and stay silent on one close by."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

from tests.source.lint_programs import SAMPLES
from whichrank.facts.taxonomy import causes
from whichrank.flows.discovery import discover_rules
from whichrank.flows.lint.check import lint
from whichrank.model.findings import NotEvaluated

RULES = discover_rules("code")
SECTIONS = ("What it finds", "Why it happens", "How it decides", "Example", "Fix", "Limits")
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.CODE)

HEAD = "import os\nfrom datetime import timedelta\nimport torch\nimport torch.distributed as dist\n"
MAIN = '\nif __name__ == "__main__":\n    main()\n'
# Habits have no place among the programs with mistakes: what fires, and what is close by and does not.
HABITS = {
    "LINT201": (
        "def main():\n    s = torch.utils.data.DistributedSampler([])\n    for epoch in range(3):\n        list(s)\n",
        (
            "def main():\n    s = torch.utils.data.DistributedSampler([])\n    for epoch in range(3):\n"
            "        s.set_epoch(epoch)\n"
        ),
    ),
    "LINT203": (
        (
            "def main():\n    dist.init_process_group('gloo', timeout=timedelta(hours=1))\n    dist.new_group([0])\n"
            "    dist.destroy_process_group()\n"
        ),
        (
            "def main():\n    dist.init_process_group('gloo', timeout=timedelta(hours=1))\n"
            "    dist.new_group([0], timeout=timedelta(hours=1))\n    dist.destroy_process_group()\n"
        ),
    ),
    "LINT204": (
        (
            "def main():\n    dist.init_process_group('nccl')\n    os.environ['NCCL_DEBUG'] = 'INFO'\n"
            "    dist.destroy_process_group()\n"
        ),
        (
            "def main():\n    os.environ['NCCL_DEBUG'] = 'INFO'\n    dist.init_process_group('nccl')\n"
            "    dist.destroy_process_group()\n"
        ),
    ),
    "LINT205": (
        "def main():\n    dist.init_process_group('nccl')\n    dist.barrier()\n    dist.destroy_process_group()\n",
        (
            "def main():\n    torch.cuda.set_device(0)\n    dist.init_process_group('nccl')\n    dist.barrier()\n"
            "    dist.destroy_process_group()\n"
        ),
    ),
    "LINT208": (
        (
            "def main(net, batch):\n    model = torch.nn.parallel.DistributedDataParallel(net)\n"
            "    model.module(batch).sum().backward()\n"
        ),
        (
            "def main(net, batch):\n    model = torch.nn.parallel.DistributedDataParallel(net)\n"
            "    model(batch).sum().backward()\n"
        ),
    ),
    "LINT209": (
        (
            "def main(net, loader, opt):\n    model = torch.nn.parallel.DistributedDataParallel(net)\n"
            "    for x in loader:\n        loss = model(x).sum()\n        loss.backward()\n"
            "        if loss.item() < 9:\n            opt.step()\n"
        ),
        (
            "def main(net, loader, opt):\n    model = torch.nn.parallel.DistributedDataParallel(net)\n"
            "    for x in loader:\n        loss = model(x).sum()\n        loss.backward()\n"
            "        dist.all_reduce(loss)\n        if loss.item() < 9:\n            opt.step()\n"
        ),
    ),
    "LINT206": (
        "def main():\n    dist.init_process_group('gloo')\n",
        "def main():\n    dist.init_process_group('gloo')\n    dist.destroy_process_group()\n",
    ),
}


@pytest.fixture(scope="module")
def fired() -> dict[str, list[str]]:
    """Code -> the labelled programs in which the rule fires."""
    found = defaultdict(list)
    for path in sorted(SAMPLES.glob("*/*.py")):
        for finding in lint([path]).findings:
            found[finding.code].append(path.stem)
    return found


def test_codes_are_never_shared() -> None:
    codes = [rule.CODE for rule in RULES]
    assert len(codes) == len(set(codes)) >= 25
    assert all(re.fullmatch(r"LINT\d{3}", code) for code in codes)


@each_rule
def test_the_cause_is_in_the_taxonomy_or_nowhere(rule: ModuleType) -> None:
    assert rule.CAUSE == "" or rule.CAUSE in causes()


@each_rule
def test_the_page_is_whole(rule: ModuleType) -> None:
    page = rule.__doc__ or ""
    assert page.partition("\n")[0].endswith(".")
    places = [match.start() for section in SECTIONS if (match := re.search(rf"^## {section}$", page, re.MULTILINE))]
    assert len(places) == len(SECTIONS)
    assert places == sorted(places)


@each_rule
def test_without_a_program_nothing_is_evaluated(rule: ModuleType) -> None:
    answer = rule.judge(None)
    assert isinstance(answer, NotEvaluated)
    assert answer.missing


@each_rule
def test_a_rule_fires_on_a_labelled_program_or_a_habit(rule: ModuleType, fired: dict[str, list[str]]) -> None:
    assert rule.CODE in HABITS or any(stem.endswith("_wrong") for stem in fired[rule.CODE])


@pytest.mark.parametrize("code", HABITS)
def test_a_habit_is_found_and_its_fixed_twin_is_not(code: str, tmp_path: Path) -> None:
    wrong, right = HABITS[code]
    path = tmp_path / "train.py"
    path.write_text(HEAD + wrong + MAIN)
    assert code in {finding.code for finding in lint([path]).findings}
    path.write_text(HEAD + right + MAIN)
    assert code not in {finding.code for finding in lint([path]).findings}


def test_findings_on_hygiene_have_no_cause(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + HABITS["LINT206"][0] + MAIN)
    (found,) = lint([path]).findings
    assert (found.code, found.cause, found.severity) == ("LINT206", "", "info")

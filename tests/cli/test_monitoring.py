"""The files for other people's monitoring: whole, true to the metrics, and right by Prometheus's own tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from whichrank.cli.tools.monitoring import files
from whichrank.run.monitoring.metrics import CATALOGUE

RULES_TEST = ROOT / "tests" / "run" / "monitoring" / "alerts_test.yml"
NAMES = {metric.name for metric in CATALOGUE}
PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")


@pytest.fixture
def folder(whichrank, tmp_path: Path) -> Path:
    done = whichrank("monitoring", "--write", tmp_path / "new")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return tmp_path / "new"


def promtool(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)


def test_names_and_contents(whichrank, folder):
    assert whichrank("monitoring").stdout.split() == ["alerts.yml", "dashboard.json", "prometheus.yml"]
    for name, file in files().items():
        assert whichrank("monitoring", name).stdout == file.read_text() == (folder / name).read_text()
    done = whichrank("monitoring", "--write", "/proc/nowhere")
    assert done.returncode == 2
    assert "can't create the folder" in done.stderr


@PROMTOOL
def test_promtool_agrees_with_rules_and_config(folder):
    rules = promtool("check", "rules", "alerts.yml", cwd=folder)
    assert rules.returncode == 0, rules.stderr
    config = promtool("check", "config", "prometheus.yml", cwd=folder)
    assert config.returncode == 0, config.stderr


@PROMTOOL
def test_the_alerts_fire_when_they_should(folder):
    shutil.copy(RULES_TEST, folder)
    done = promtool("test", "rules", RULES_TEST.name, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    broken = (folder / "alerts.yml").read_text().replace("whichrank_alarm_level == 2", "whichrank_alarm_level == 1")
    (folder / "alerts.yml").write_text(broken)
    assert promtool("test", "rules", RULES_TEST.name, cwd=folder).returncode != 0, "the test can fail"


def test_only_metrics_that_exist_are_used():
    expressions = [
        rule["expr"] for group in yaml.safe_load(files()["alerts.yml"].read_text())["groups"] for rule in group["rules"]
    ]
    dashboard = json.loads(files()["dashboard.json"].read_text())
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [target["expr"] for target in targets]
    expressions += [note["expr"] for note in dashboard["annotations"]["list"]]
    assert len(expressions) > 15
    for expression in expressions:
        used = set(re.findall(r"whichrank_\w+", expression))
        assert used, expression
        assert used <= NAMES, expression


def test_every_alert_is_documented():
    page = (ROOT / "docs" / "metrics.md").read_text()
    for group in yaml.safe_load(files()["alerts.yml"].read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["alert"] in page
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            assert rule["annotations"]["summary"]


def test_the_panels_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(files()["dashboard.json"].read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells

"""The documents agree with the code."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT, command_environment


def test_rule_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "rule_pages.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        env=command_environment(),
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md"])
def test_links_lead_somewhere(name):
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert ((ROOT / name).parent / target).exists(), target


def test_the_architecture_names_every_package():
    told = (ROOT / "docs" / "architecture.md").read_text()
    packages = [folder.name for folder in (ROOT / "src" / "whichrank").iterdir() if (folder / "__init__.py").exists()]
    assert "model" in packages
    assert [name for name in packages if f"| `{name}/` |" not in told] == []


def test_the_readme_shows_what_the_demo_prints(whichrank, example):
    readme = (ROOT / "README.md").read_text()
    shown = readme.split("<!-- diagnosis", 1)[1].split("```\n", 1)[1].split("```\n", 1)[0]
    assert shown == whichrank("diagnose", example).stdout


def test_continuous_integration_runs_the_tests():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "make test" in script.read_text()

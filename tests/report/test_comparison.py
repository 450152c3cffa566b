"""`compare` in its formats: what is quoted stays text."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from whichrank.model.difference import Difference

HOSTILE = "<script>alert(1)</script> | `x` \x1b[31m\u202e @all\nnext"
FOUND = [
    Difference("argument --lr", "0.1", HOSTILE, 0.95, "the verdict names it"),
    Difference("verdict", "", "", 0.1, ""),
]
LOOKED = ["settings and code of two runs"]


def rendered(name: str, found: list[Difference]) -> str:
    return "".join(import_module(f"whichrank.report.comparison.{name}").render(found, LOOKED))


def test_markdown_is_one_table() -> None:
    rows = rendered("markdown", FOUND).splitlines()
    assert [row.replace("\\|", "").count("|") for row in rows[:4]] == [6, 6, 6, 6]
    assert "<script>" not in "".join(rows)
    assert "very suspicious: the verdict names it" in rows[2]


def test_the_page_shows_text() -> None:
    page = rendered("html", FOUND)
    assert "2 differences between two runs" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


def test_a_terminal_gets_no_control_characters() -> None:
    assert "\x1b" not in rendered("text", FOUND)
    assert json.loads(rendered("json", FOUND))["differences"][0]["what"] == "argument --lr"


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_no_difference_is_said(name: str) -> None:
    assert "No difference" in rendered(name, [])

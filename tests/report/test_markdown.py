from __future__ import annotations

from msgspec.structs import replace

from tests import standin
from whichrank.model.evidence import Ref
from whichrank.report import markdown


def told(diagnosis):
    return "".join(markdown.render(diagnosis))


def test_answer_first_and_coverage_folded():
    report = told(standin.hang())
    assert report.startswith("## Rank 2 skipped all_reduce 5 of the world in sync_grads")
    order = [report.index(f"### {t}") for t in ("Who", "Proof", "What to do", "How to fix it", "Next")]
    assert order == sorted(order)
    folded = report[report.index("<details>") :]
    assert "<summary>Coverage</summary>" in folded
    assert "cut after 14 entries" in folded
    assert report.count("<details>") == report.count("</details>") == 1


def test_quotes_stay_inside_their_fence():
    quote = "```\n</details><script>alert(1)</script>"
    diagnosis = replace(standin.hang(), findings=(standin.finding(evidence=(Ref("a", "line 1", quote),)),))
    report = told(diagnosis)
    opened = next(line.strip() for line in report.splitlines() if line.strip().startswith("````"))
    fence = opened.removesuffix("text")
    inside = report.split(opened, 1)[1].split(f"\n     {fence}\n", 1)[0]
    assert "</details><script>" in inside
    assert len(fence) == 4


def test_prose_is_shown_as_it_is():
    assert markdown.escaped("all_reduce of *x* by @someone <b> _y_ [a](b) #1") == (
        "all_reduce of \\*x\\* by &#64;someone &lt;b&gt; \\_y\\_ \\[a\\](b) \\#1"
    )


def test_large_worlds_make_short_tickets():
    assert len(told(standin.large())) < 20_000

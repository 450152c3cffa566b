"""Counting answers, and telling them."""

import json
from pathlib import Path

import pytest

from whichrank.lab import catalogue, tables
from whichrank.lab.scoreboard import Board, Round, Run, score
from whichrank.lab.truth import Answer, Truth, mark, read
from whichrank.model.errors import UsageError

TRUTH = Truth("hang", "conditional-collective", (2,), ("collective-desync",))
EXAMPLE = Path(__file__).parents[2] / "examples" / "skipped_collective"


@pytest.mark.parametrize(
    ("answer", "right", "exact", "accused"),
    [
        (Answer("conditional-collective", (2,)), True, True, False),
        (Answer("collective-desync", (2,)), True, True, False),
        (Answer("rank-killed", (2,)), False, True, False),
        (Answer("conditional-collective", (1, 2)), True, False, True),
        (Answer("unknown", ()), False, False, False),
        (Answer(None, (0, 1, 3)), False, False, True),
    ],
)
def test_marks(answer, right, exact, accused):
    outcome = mark(TRUTH, answer)
    assert (outcome.right, outcome.exact, outcome.accused) == (right, exact, accused)


def test_nobody_to_blame_accuses_whoever_is_named():
    healthy = Truth("healthy", "healthy", ())
    assert mark(healthy, Answer("healthy")).exact
    assert mark(healthy, Answer("straggler", (3,))).accused


def test_where_no_rank_is_to_blame_ranks_do_not_count():
    assert mark(Truth("crash", "ib-link-flap", None), Answer("ib-link-flap", (1,))).exact


def board() -> Board:
    made = Board(skipped=[("gpu_endless_kernel", "needs gpu")], injected={"xid"})
    right, wrong = Answer("conditional-collective", (2,), "it <skipped>"), Answer("rank-killed", (1,), "it died")
    made.runs = [
        Run("skip", "drill", "seed 1, 4 ranks", "whichrank", TRUTH, right, 5.0, 9.0),
        Run("skip", "drill", "seed 2, 4 ranks", "whichrank", TRUTH, wrong, 7.0, 12.0),
        Run("skip", "drill", "seed 1, 4 ranks", "torchfrtrace", TRUTH, Answer(None, (0, 1)), None, None),
    ]
    return made


def test_counts_are_per_tool_and_misses_are_told():
    document = board().as_json()
    ours = document["scores"][0]["tools"]["whichrank"]
    assert ours == {
        "runs": 2, "right_cause": 1, "culprits_known": 2, "exact_culprits": 1, "innocents_accused": 1, "alarm_s": 6.0,
        "verdict_s": 10.5, "answer_s": None,
    }  # fmt: skip
    assert document["totals"]["drill"]["torchfrtrace"]["innocents_accused"] == 1
    assert [miss["tool"] for miss in document["misses"]] == ["whichrank", "torchfrtrace"]
    assert document["skipped"] == [{"fault": "gpu_endless_kernel", "why": "needs gpu"}]
    json.dumps(document)


def test_tables_tell_the_same():
    made = board()
    text, markdown, picture = "".join(tables.text(made)), "".join(tables.markdown(made)), tables.picture(made)
    assert "missed: skip (seed 2, 4 ranks): said rank-killed [1], truth conditional-collective [2]" in text
    assert "| skip | conditional-collective | 1/1 of 2/2, 1 accused | 0/0 of 1/1, 1 accused | 6 | 10.5 |" in markdown
    assert picture.count("<rect") == 6
    assert "50% exact, 50% accused" in picture


def test_a_corpus_is_scored(tmp_path):
    case = tmp_path / "cases" / "one"
    case.mkdir(parents=True)
    for file in EXAMPLE.iterdir():
        if file.is_file():
            (case / file.name).write_bytes(file.read_bytes())
    (case / "truth.yaml").write_text("category: hang\ncause: conditional-collective\nculprit_ranks: [2]\n")
    said = []
    made = score(Round([], [], []), [tmp_path / "cases"], said.append)
    assert made.count("whichrank", "cases").exact == 1
    assert said == ["one: conditional-collective [2]: right"]


@pytest.mark.parametrize("text", ["", "category: hang", "category: hang\ncause: x\nculprit_ranks: 3\n", "a: [", "- 1"])
def test_a_broken_truth_is_told(tmp_path, text):
    (tmp_path / "truth.yaml").write_text(text)
    with pytest.raises(UsageError, match="is not a valid truth"):
        read(tmp_path / "truth.yaml")


def test_a_drill_that_cannot_be_made_is_told_and_the_others_are_not_lost(tmp_path):
    (tmp_path / "no_such_folder.py").write_text(
        '"""It needs what is not there."""\n'
        'CAUSE, CATEGORY, WORKLOAD = "rank-killed", "crash", "ddp"\n'
        "def launch(setup):\n"
        '    (setup.folder / "missing" / "file").write_text("")\n'
    )
    fault, heard = catalogue.from_file(tmp_path / "no_such_folder.py"), []
    board = score(Round([fault], seeds=[1, 2], sizes=[2], with_peers=False), [], heard.append)
    assert board.runs == []
    assert [name for name, _ in board.skipped] == ["no_such_folder"] * 2
    assert all("FileNotFoundError" in why for _, why in board.skipped)
    assert len(heard) == 2

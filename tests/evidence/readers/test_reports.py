"""What people write: changes with their outcome, and what was seen."""

from __future__ import annotations

import pytest

from whichrank.evidence.readers.reports import read, sniff
from whichrank.evidence.readers.reports.symptoms import complaints
from whichrank.evidence.readers.reports.trials import by_version, tried
from whichrank.model.contracts import Item
from whichrank.records.trial import Complaint, Trial

P2P, IB = "NCCL_P2P_DISABLE=1", "NCCL_IB_DISABLE=1"


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("It works with NCCL_P2P_DISABLE=1.", [(P2P, "helped")]),
        ("NCCL_P2P_DISABLE=1 does not help", [(P2P, "did not help")]),
        ("I set NCCL_P2P_DISABLE=1 but it still hangs", [(P2P, "did not help")]),
        ("Disabling P2P makes the hang go away", [(P2P, "helped")]),
        ("NCCL_IB_DISABLE=1 did not help, NCCL_P2P_DISABLE=1 fixed it", [(P2P, "helped"), (IB, "did not help")]),
        ("NCCL_P2P_DISABLE=1, NCCL_IB_DISABLE=1: no change", [(P2P, "did not help"), (IB, "did not help")]),
        ("Neither NCCL_P2P_DISABLE=1 nor NCCL_IB_DISABLE=1 helped", [(P2P, "did not help"), (IB, "did not help")]),
        ("Does NCCL_P2P_DISABLE=1 help?", [(P2P, "unknown")]),
        ("You could try NCCL_P2P_DISABLE=1, that should fix it", [(P2P, "unknown")]),
        ("Everything runs fine without NCCL_P2P_DISABLE", []),
        ("NCCL_P2P_DISABLE=0 works", []),
        ("the firewall is off, ping works", [("firewall off", "did not help")]),
        ("after disabling the firewall it works", [("firewall off", "helped")]),
        ("raising the timeout to 2 h: still hangs, only later", [("longer timeout", "did not help")]),
    ],
)
def test_a_change_has_its_outcome(sentence, expected):
    assert sorted(tried(sentence)) == sorted(expected)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("All ranks hang in the first all_reduce", ["hang"]),
        ("No crash and no error, it just never returns", ["hang"]),
        ("The job crashes after ten minutes", ["crash"]),
        ("Training is three times slower on two nodes", ["slow"]),
        ("The loss is nan after step 3", ["corruption"]),
        ("Is it stuck?", []),
        ("跑着跑着就停在 loss.backward()，不报错，也不往下走", ["hang"]),
        ("epoch 이 끝나고 validation 뒤의 barrier 에서 모든 프로세스가 멈춰 있음", ["hang"]),
        ("노드를 두 개로 늘리면 학습이 한 개일 때보다 느려", ["slow"]),
        ("Data loading is the bottleneck of the run", ["slow"]),
        ("It does not hang.", []),
    ],
)
def test_what_was_seen(sentence, expected):
    assert complaints(sentence) == expected


def records(tmp_path, text, name="ticket.txt"):
    path = tmp_path / name
    path.write_text(text)
    return read(Item(path, name, path.stat().st_size, 0)).records


def test_items_of_a_list_take_the_outcome_of_its_heading(tmp_path):
    text = "We tried the following without success:\n- NCCL_P2P_DISABLE=1\n- NCCL_IB_DISABLE=1\n\nIt hangs in init.\n"
    found = records(tmp_path, text)
    assert [(r.change, r.outcome) for r in found if isinstance(r, Trial)] == [
        (P2P, "did not help"), (IB, "did not help")
    ]  # fmt: skip
    assert [r.category for r in found if isinstance(r, Complaint)] == ["hang"]


def test_what_programs_print_is_no_report(tmp_path):
    text = (
        "node1:10:10 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
        "2026-01-01 10:00:00 INFO it works with NCCL_P2P_DISABLE=1 now\n"
        "NCCL_P2P_DISABLE=1\n"
    )
    assert records(tmp_path, text, "train.log") == []


def test_code_and_long_texts_are_left_alone(tmp_path):
    assert not sniff(b"# works with NCCL_P2P_DISABLE=1 here\n", "launch.py")
    assert records(tmp_path, "It hangs with this much text. " * 4000) == []


def test_the_errors_of_a_program_are_no_words_of_a_person(tmp_path):
    printed = "slurmstepd: error: Detected 1 oom_kill event. Some of the step tasks have been OOM Killed.\n"
    assert not records(tmp_path, printed)
    assert records(tmp_path, "Some of the tasks of this step have been killed again.\n", "mail.txt")


@pytest.mark.parametrize(
    ("answer", "category"),
    [("Data corruption", "corruption"), ("Lower performance than expected", "slow"), ("Application hang", "hang")],
)
def test_the_answer_in_a_form_outweighs_the_words_around_it(tmp_path, answer, category):
    text = f"### How is this issue impacting you?\n\n{answer}\n\n### Behavior\n\nWe see a crash in the test.\n"
    said = [record for record in records(tmp_path, text, "issue.md") if isinstance(record, Complaint)]
    weights = {c.category: sum(s.weight for s in said if s.category == c.category) for c in said}
    assert max(weights, key=weights.__getitem__) == category


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("- fails: NCCL 2.26.2+cuda12.2\n- works: NCCL 2.31.2+cuda12.9\n", [2]),
        ("wrong order with NCCL 2.26.2; 2.21.5 is OK\n", [1]),
        ("NCCL 2.26.2 hangs, NCCL 2.31.2 hangs too\n", []),
        ("we run NCCL 2.26.2 and it works\n", []),
    ],
)
def test_a_release_that_works_where_another_does_not(text, lines):
    assert [line for line, _ in by_version(text)] == lines


@pytest.mark.parametrize(
    ("sentence", "category"),
    [
        ("Training stalls every 8 steps and goes on", "slow"),
        ("it stops for a while, then goes on", "slow"),
        ("it hangs every time I start it", "hang"),
        ("it does not get any further than this", "hang"),
    ],
)
def test_what_stops_and_goes_on_is_slow(sentence, category):
    assert complaints(sentence) == [category]

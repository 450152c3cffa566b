"""Metrics: from looks to the text that Prometheus reads."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.conftest import ROOT
from whichrank.model import last_words as layout
from whichrank.model.findings import Gpu, Subject
from whichrank.model.last_words import Words
from whichrank.model.verdict import Diagnosis, GroupInfo, Verdict, Wait
from whichrank.run.monitoring.exposition import Family, Metric, render
from whichrank.run.monitoring.metrics import CATALOGUE, PER_RANK, families
from whichrank.run.monitoring.observers import Audience, Silent
from whichrank.run.monitoring.tally import Tally
from whichrank.run.watch.guarding import GuardState
from whichrank.run.watch.job_processes import Member
from whichrank.run.watch.slow.stragglers import Straggler

START_NS = 1_700_000_000_000_000_000


def member(
    rank: int, issued: int, *, waiting: bool = False, alive: bool = True, pid: int = 0, world: int = 2
) -> Member:
    words = Words(
        pid=pid or 100 + rank, rank=rank, world=world, phase=layout.JOINED, enqueued=issued, completed=issued - waiting,
        pending=int(waiting), changed_ns=START_NS, flags=layout.IN_COLLECTIVE * waiting, operation="all_reduce",
        steps=issued // 5,
    )  # fmt: skip
    return Member(words, str(rank), alive=alive)


def verdict(**culprits: tuple) -> Diagnosis:
    told = Verdict("hang", "rank-frozen", Subject(**culprits), (0,), 0.75, "Rank 1 stands still.")
    groups = (GroupInfo("g0", "0", "default_pg", (0, 1), 3),)
    return Diagnosis(told, groups=groups, waits=(Wait(0, "g0", 4, "all_reduce", (1,)),))


def values(tally: Tally, now_s: float = 0.0, now_ns: int = START_NS) -> dict[str, float]:
    """Every line of a scrape."""
    lines = [line for line in render(families(tally, now_s, now_ns)).splitlines() if not line.startswith("#")]
    told = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
    assert len(told) == len(lines), "no series twice"
    return told


def hung() -> Tally:
    """Twenty collectives a second for ten seconds, then rank 0 waits for rank 1."""
    tally = Tally("train.py")
    for look in range(21):
        tally.on_look(look / 2, "calm", [member(0, 10 * look), member(1, 10 * look)])
    tally.on_alarm("suspect", "…")
    for look in range(21, 31):
        tally.on_look(look / 2, "suspect", [member(0, 201, waiting=True), member(1, 200)])
    tally.on_alarm("confirmed", "…")
    tally.on_look(15.5, "confirmed", [member(0, 201, waiting=True), member(1, 200)])
    tally.on_verdict(verdict(ranks=(1,), hosts=("node7",)))
    return tally


def test_a_job_that_hangs() -> None:
    told = values(hung(), 16.0, START_NS + 5_500_000_000)
    assert told["whichrank_up"] == 1
    assert told['whichrank_job_info{name="train.py"}'] == 1
    assert told["whichrank_world_size"] == 2
    assert told['whichrank_ranks{phase="joined"}'] == 2
    assert told['whichrank_ranks{phase="gone"}'] == 0
    assert told['whichrank_rank_collectives_issued_total{rank="0"}'] == 201
    assert told['whichrank_rank_collectives_completed_total{rank="0"}'] == 200
    assert told['whichrank_rank_waiting_seconds_total{rank="0"}'] == 5.5
    assert told['whichrank_rank_waiting_seconds_total{rank="1"}'] == 0
    assert told['whichrank_operation_waiting_seconds_total{operation="all_reduce"}'] == 5.5
    assert told['whichrank_rank_progress_age_seconds{rank="1"}'] == 5.5
    assert told["whichrank_alarm_level"] == 2
    assert told['whichrank_alarms_total{level="confirmed"}'] == 1
    assert told['whichrank_alarms_total{level="crash"}'] == 0
    labels = 'cause="rank-frozen",category="hang",culprit_rank="1",culprit_host="node7"'
    assert told[f"whichrank_verdict_info{{{labels}}}"] == 1
    assert told["whichrank_verdict_confidence_ratio"] == 0.75
    assert told["whichrank_verdict_timestamp_seconds"] > 1.7e9
    assert told['whichrank_verdict_waiting_ranks{group="default_pg"}'] == 1


def test_rates_follow_the_job() -> None:
    tally = Tally()
    assert "whichrank_collectives_per_second" not in values(tally)
    for look in range(200):
        tally.on_look(look / 2, "calm", [member(0, 5 * look), member(1, 5 * look), member(2, 4 * look)])
    told = values(tally)
    assert told["whichrank_collectives_per_second"] == pytest.approx(10.0)
    assert told["whichrank_rounds_per_second"] == pytest.approx(8.0)
    assert told["whichrank_steps_per_second"] == pytest.approx(1.6, rel=0.05)
    for look in range(200, 270):
        tally.on_look(look / 2, "calm", [member(0, 1000), member(1, 1000), member(2, 1000)])
    assert values(tally)["whichrank_collectives_per_second"] == 0


def test_a_watcher_that_stopped() -> None:
    tally = hung()
    assert values(tally, 20.0)["whichrank_up"] == 1
    assert values(tally, 60.0)["whichrank_up"] == 0
    assert values(Tally(), 0.0)["whichrank_up"] == 0


def test_a_job_that_has_ended() -> None:
    tally = hung()
    tally.end()
    told = values(tally, 16.0)
    assert (told["whichrank_up"], told["whichrank_alarm_level"]) == (0, 0), "no alert stays on forever"
    assert told['whichrank_ranks{phase="ended"}'] == 2
    assert told['whichrank_alarms_total{level="confirmed"}'] == 1
    assert any(name.startswith("whichrank_verdict_info") for name in told)
    assert not [name for name in told if "per_second" in name or "age_seconds" in name]


def test_a_rank_that_has_gone() -> None:
    tally = Tally()
    tally.on_look(0.0, "calm", [member(0, 5), member(1, 5, alive=False)])
    told = values(tally)
    assert told['whichrank_ranks{phase="gone"}'] == 1
    assert 'whichrank_rank_progress_age_seconds{rank="1"}' not in told, "the dead make no progress"


def test_restarts_are_counted_once_each() -> None:
    tally = Tally()
    tally.on_look(0.0, "calm", [member(0, 50), member(1, 50)])
    tally.on_look(0.5, "calm", [member(0, 0, pid=200)])
    tally.on_look(1.0, "calm", [member(0, 1, pid=200), member(1, 1, pid=201)])
    assert values(tally)["whichrank_restarts_total"] == 1
    tally.on_look(1.5, "calm", [])
    tally.on_look(2.0, "calm", [member(0, 1, pid=300), member(1, 1, pid=301)])
    assert values(tally)["whichrank_restarts_total"] == 2
    assert values(tally)["whichrank_collectives_per_second"] >= 0 if len(tally.counts) > 1 else True


def test_the_time_of_a_watcher_that_was_away_is_nobodys() -> None:
    tally = Tally()
    for at in (0.0, 0.5, 500.0, 500.5):
        tally.on_look(at, "calm", [member(0, 5, waiting=True)])
    assert values(tally)['whichrank_rank_waiting_seconds_total{rank="0"}'] == 1.0


def test_operations_are_bounded() -> None:
    tally = Tally()
    for number in range(100):
        one = member(0, number, waiting=True)
        one.words = one.words._replace(operation=f"operation_{number}", flags=layout.IN_COLLECTIVE * (number != 50))
        tally.on_look(number / 2, "calm", [one])
    told = {name: value for name, value in values(tally).items() if "operation_waiting" in name}
    assert len(told) == 33
    assert sum(told.values()) == 99 / 2
    assert told['whichrank_operation_waiting_seconds_total{operation="other"}'] == 33.5


@pytest.mark.parametrize("world", [PER_RANK, PER_RANK + 1, 4096])
def test_series_stay_few(world: int) -> None:
    tally = Tally()
    for at in (0.0, 0.5):
        tally.on_look(at, "calm", [member(r, r, world=world, waiting=r > 9) for r in range(world)])
    tally.on_verdict(verdict(ranks=tuple(range(world)), hosts=tuple(f"node{r}" for r in range(world))))
    told = values(tally)
    per_rank = [name for name in told if "rank=" in name and "culprit" not in name]
    assert len(per_rank) == (4 * world if world <= PER_RANK else 0)
    assert len(told) < 4 * PER_RANK + 60
    assert told['whichrank_collectives_issued{stat="max"}'] == world - 1
    assert told['whichrank_collectives_issued{stat="min"}'] == 0
    assert told['whichrank_waiting_seconds{stat="median"}'] == 0.5
    assert any('culprit_rank="many",culprit_host="many"' in name for name in told)


def test_hosts_of_guilty_gpus_are_named() -> None:
    tally = Tally()
    tally.on_verdict(verdict(gpus=(Gpu("node7", 3), Gpu("node7", 4))))
    assert any('culprit_rank="none",culprit_host="node7"' in name for name in values(tally))


def test_hostile_labels() -> None:
    name = 'a"b\\c\nd\x1b[31m' + "x" * 200 + "\ud800"
    text = render([Family(Metric("whichrank_x", "gauge", "Says \\ and\nmore.", ("name",)), [({"name": name}, 1.5)])])
    assert text.count("\n") == 3
    assert text.splitlines()[0] == r"# HELP whichrank_x Says \\ and\nmore."
    assert text.splitlines()[2].startswith(r'whichrank_x{name="a\"b\\c?d?[31mxxx')
    assert len(text.splitlines()[2]) < 120
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("value", "written"), [(1.0, "1"), (0.25, "0.25"), (float("inf"), "+Inf"), (float("nan"), "NaN"), (1e300, "1e+300")]
)
def test_numbers(value: float, written: str) -> None:
    assert render([Family(Metric("whichrank_x", "gauge", "X."), [({}, value)])]).endswith(f"whichrank_x {written}\n")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_has_nothing_to_say() -> None:
    page = render(families(hung(), 16.0, START_NS + 5_500_000_000))
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_metric_is_told_and_documented() -> None:
    tally = hung()
    tally.on_guard(GuardState(steps=7, compared=90, window=4, wrong=1, off=0))
    tally.on_straggler(Straggler(1, 0.05, 0.6, "train.py:7 f", 60.0))
    told = {family.metric.name for family in families(tally, 16.0, START_NS) if family.samples}
    assert told == {metric.name for metric in CATALOGUE}
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(whichrank_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows}
    assert documented == {metric.name: (metric.kind, metric.labels, metric.help) for metric in CATALOGUE}


def test_a_listener_that_fails_is_left_out() -> None:
    class Broken(Silent):
        def on_alarm(self, level: str, why: str) -> None:
            raise ZeroDivisionError("division by zero")

    said: list[str] = []
    tally = Tally()
    audience = Audience([Broken(), tally], said.append)
    audience.on_alarm("suspect", "…")
    audience.on_alarm("suspect", "…")
    assert tally.alarms["suspect"] == 2, "the others still hear"
    assert said == ["broken stopped after an error of its own (ZeroDivisionError: division by zero)"]

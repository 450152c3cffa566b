"""The metrics of a watched job: what they are called, what they mean, and their values. Pure: a tally in, families out.

docs/metrics.md says the same for people; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from statistics import median

from whichrank import __version__
from whichrank.model import last_words as layout
from whichrank.model.findings import Subject
from whichrank.run.monitoring.exposition import Family, Metric, Sample
from whichrank.run.monitoring.tally import Rank, Tally

PER_RANK = 512
"""With more ranks than these only the least, the median and the most are told."""
MOST_GROUPS = 32
MOST_RANKS = 8
"""Culprits that a label names; more are "many"."""
MOST_HOSTS = 4
LOST_S = 30.0
"""Without a look for so long nobody watches any more; a capture and its diagnosis take less."""
LEVELS = {"calm": 0, "suspect": 1, "confirmed": 2}
PHASES = (*layout.PHASES, "stopped", "gone")

BUILD = Metric("whichrank_build_info", "gauge", "The version of whichrank; always 1.", ("version",))
JOB = Metric("whichrank_job_info", "gauge", "The job that is watched, by its command; always 1.", ("name",))
UP = Metric("whichrank_up", "gauge", "1 while the ranks are looked at, 0 when the watcher has stopped.")
WORLD = Metric("whichrank_world_size", "gauge", "Ranks that the job should have.")
RANKS = Metric("whichrank_ranks", "gauge", "Ranks by what they have reached.", ("phase",))
ISSUED = Metric(
    "whichrank_rank_collectives_issued_total", "counter",
    "Collectives that a rank has issued, over all groups, since its process started.", ("rank",),
)  # fmt: skip
COMPLETED = Metric(
    "whichrank_rank_collectives_completed_total", "counter",
    "Collectives of a rank that are complete; 0 where the flight recorder is off.", ("rank",),
)  # fmt: skip
WAITED = Metric(
    "whichrank_rank_waiting_seconds_total", "counter",
    "Seconds in which a rank was seen inside a collective or with one under way, sampled twice a second.", ("rank",),
)  # fmt: skip
WAITED_IN = Metric(
    "whichrank_operation_waiting_seconds_total", "counter",
    "The same over all ranks, by the function of torch.distributed that they were in.", ("operation",),
)  # fmt: skip
AGE = Metric(
    "whichrank_rank_progress_age_seconds", "gauge",
    "Seconds since the counters or the phase of a living rank last changed.", ("rank",),
)  # fmt: skip
ISSUED_OF = Metric("whichrank_collectives_issued", "gauge", "Collectives issued, among the ranks.", ("stat",))
COMPLETED_OF = Metric("whichrank_collectives_completed", "gauge", "Collectives complete, among the ranks.", ("stat",))
WAITED_OF = Metric("whichrank_waiting_seconds", "gauge", "Seconds seen waiting, among the ranks.", ("stat",))
AGE_OF = Metric("whichrank_progress_age_seconds", "gauge", "Seconds since progress, among living ranks.", ("stat",))
RATE = Metric(
    "whichrank_collectives_per_second", "gauge", "Collectives that the median rank issues per second, over 30 s."
)
ROUNDS = Metric(
    "whichrank_rounds_per_second", "gauge",
    "Collectives per second that even the rank with the fewest has issued, over 30 s.",
)  # fmt: skip
STEPS = Metric(
    "whichrank_steps_per_second", "gauge",
    "Steps of optimizers per second of the rank with the fewest, over 30 s; absent where the job has none of torch's.",
)  # fmt: skip
ALARM = Metric("whichrank_alarm_level", "gauge", "0 calm, 1 a hang is suspected, 2 a hang is confirmed.")
ALARMS = Metric("whichrank_alarms_total", "counter", "Alarms since the start, by level.", ("level",))
RESTARTS = Metric("whichrank_restarts_total", "counter", "How often the ranks were started again.")
STRAGGLER = Metric(
    "whichrank_straggler_lost_ratio", "gauge",
    "Share of their time that the other ranks wait for this one; absent while no rank holds them up.", ("rank",),
)  # fmt: skip
VERDICT = Metric(
    "whichrank_verdict_info", "gauge", "The last verdict; always 1.",
    ("cause", "category", "culprit_rank", "culprit_host"),
)  # fmt: skip
CONFIDENCE = Metric("whichrank_verdict_confidence_ratio", "gauge", "The probability that the last verdict is right.")
VERDICT_AT = Metric("whichrank_verdict_timestamp_seconds", "gauge", "When the last verdict was made, since 1970.")
VERDICT_WAITS = Metric(
    "whichrank_verdict_waiting_ranks", "gauge", "Ranks that wait in a group, by the last verdict.", ("group",)
)

GUARD_COMPARED = Metric(
    "whichrank_guard_comparisons_total",
    "counter",
    "Slices, gradients and collectives compared between ranks (--guard).",
)
GUARD_STEP = Metric("whichrank_guard_step", "gauge", "The newest step of an optimizer that the guard has seen.")
GUARD_WINDOW = Metric("whichrank_guard_window_steps", "gauge", "Steps within which every tensor is compared once.")
GUARD_WRONG = Metric("whichrank_guard_differences", "gauge", "Differences between ranks that should not be there.")
GUARD_OFF = Metric("whichrank_guard_ranks_off", "gauge", "Ranks whose guard had a problem of its own.")

CATALOGUE = (
    BUILD, JOB, UP, WORLD, RANKS, ISSUED, COMPLETED, WAITED, WAITED_IN, AGE, ISSUED_OF, COMPLETED_OF, WAITED_OF, AGE_OF,
    RATE, ROUNDS, STEPS, ALARM, ALARMS, RESTARTS, STRAGGLER, VERDICT, CONFIDENCE, VERDICT_AT, VERDICT_WAITS,
    GUARD_COMPARED, GUARD_STEP, GUARD_WINDOW, GUARD_WRONG, GUARD_OFF,
)  # fmt: skip

_Value = Callable[[int, Rank], float]


def families(tally: Tally, now_s: float, now_ns: int) -> list[Family]:
    """All values at this moment: monotonic seconds for looks, nanoseconds since 1970 for the words of ranks."""
    with tally.lock:
        return [*_job(tally, now_s), *_ranks(tally, now_ns), *_alarms(tally), *_guard(tally), *_verdict(tally)]


def _job(tally: Tally, now_s: float) -> Iterator[Family]:
    watching = tally.looked is not None and now_s - tally.looked < LOST_S
    yield Family(BUILD, [({"version": __version__}, 1)])
    yield Family(JOB, [({"name": tally.job}, 1)])
    yield _single(UP, float(watching))
    world = max((rank.words.world for rank in tally.ranks.values()), default=-1)
    if world > 0:
        yield _single(WORLD, world)
    reached = [_phase(rank, ended=tally.ended) for rank in tally.ranks.values()]
    yield Family(RANKS, [({"phase": phase}, reached.count(phase)) for phase in PHASES])
    rates = tally.rates()
    if rates is not None and not tally.ended:
        yield _single(ROUNDS, rates.fewest)
        yield _single(RATE, rates.median)
        if rates.steps is not None:
            yield _single(STEPS, rates.steps)


def _ranks(tally: Tally, now_ns: int) -> Iterator[Family]:
    everyone = sorted(tally.ranks.items())
    living = [(number, rank) for number, rank in everyone if rank.alive and not tally.ended]
    rows: tuple[tuple[Metric, Metric, list[tuple[int, Rank]], _Value], ...] = (
        (ISSUED, ISSUED_OF, everyone, lambda _, rank: rank.words.enqueued),
        (COMPLETED, COMPLETED_OF, everyone, lambda _, rank: rank.words.completed),
        (WAITED, WAITED_OF, everyone, lambda number, _: tally.waiting_s.get(number, 0.0)),
        (AGE, AGE_OF, living, lambda _, rank: max(0.0, (now_ns - rank.words.changed_ns) / 1e9)),
    )
    for each, among, chosen, value in rows:
        values = [(number, value(number, rank)) for number, rank in chosen]
        if len(everyone) <= PER_RANK:
            yield Family(each, [({"rank": str(number)}, measured) for number, measured in values])
        yield Family(among, list(_stats([measured for _, measured in values])))
    yield Family(WAITED_IN, [({"operation": name}, waited) for name, waited in sorted(tally.waiting_in.items())])


def _alarms(tally: Tally) -> Iterator[Family]:
    yield _single(ALARM, LEVELS.get(tally.level, 0))
    yield Family(ALARMS, [({"level": level}, count) for level, count in tally.alarms.items()])
    yield _single(RESTARTS, tally.restarts)
    found = tally.straggler
    if found is not None and tally.looked is not None and tally.looked - tally.straggler_at < LOST_S:
        yield Family(STRAGGLER, [({"rank": str(found.rank)}, round(found.lost, 3))])


def _guard(tally: Tally) -> Iterator[Family]:
    if tally.guard is not None:
        yield _single(GUARD_COMPARED, tally.guard.compared)
        yield _single(GUARD_STEP, tally.guard.steps)
        yield _single(GUARD_WINDOW, tally.guard.window)
        yield _single(GUARD_WRONG, tally.guard.wrong)
        yield _single(GUARD_OFF, tally.guard.off)


def _verdict(tally: Tally) -> Iterator[Family]:
    verdict = tally.verdict
    if verdict is None:
        return
    labels = {"cause": verdict.cause or "unknown", "category": verdict.category, **culprit_labels(verdict.culprits)}
    yield Family(VERDICT, [(labels, 1)])
    yield _single(CONFIDENCE, verdict.confidence)
    yield _single(VERDICT_AT, tally.verdict_at)
    most = sorted(tally.waits.items(), key=lambda row: (-row[1], row[0]))[:MOST_GROUPS]
    yield Family(VERDICT_WAITS, [({"group": group}, count) for group, count in most])


def culprit_labels(culprits: Subject) -> dict[str, str]:
    """Who is meant, in two labels of bounded length."""
    hosts = dict.fromkeys([*culprits.hosts, *(gpu.host for gpu in culprits.gpus if gpu.host)])
    return {
        "culprit_rank": _joined([str(rank) for rank in culprits.ranks], MOST_RANKS),
        "culprit_host": _joined(list(hosts), MOST_HOSTS),
    }


def _joined(names: list[str], most: int) -> str:
    return "many" if len(names) > most else ",".join(names) or "none"


def _phase(rank: Rank, *, ended: bool) -> str:
    if ended and rank.alive:  # when it was last seen
        return layout.PHASES[layout.ENDED]
    if not rank.alive and rank.words.phase not in (layout.ENDED, layout.FAILED):
        return "gone"
    return "stopped" if rank.alive and rank.stopped else layout.PHASES[rank.words.phase]


def _stats(values: list[float]) -> Iterable[Sample]:
    if values:
        for name, value in (("min", min(values)), ("median", median(values)), ("max", max(values))):
            yield {"stat": name}, value


def _single(metric: Metric, value: float) -> Family:
    return Family(metric, [({}, value)])

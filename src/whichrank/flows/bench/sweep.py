"""Which settings really help: candidates are tried side by side with the defaults, and the best must win a rematch.

Runs differ by themselves, and some are disturbed. So everything is measured in interleaved rounds, the best are
compared with the defaults once more on fresh runs, and only a gain that chance can't explain is told.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.fleet.engines import Engine
from whichrank.fleet.host_helpers import host_helpers
from whichrank.flows.bench.measure import Plan, measure
from whichrank.model.errors import UnreadableError, WhichrankError

Settings = Mapping[str, str]
DEFAULTS: Settings = {}
AGENT = ("-m", "whichrank.evidence.probes._agent")
_NOT_A_NETWORK = ("lo", "docker", "virbr", "cni", "br-", "tun", "sit")
_ROUNDS, _FINALISTS, _LOOKS = 2, 3, (5, 8, 12)
"""Runs of each at first; how many meet the defaults again; after how many fresh runs of each that is decided."""
_AT_LEAST, _FAR_APART = 3, 3.0
"""Fewer runs decide where they are so far apart: so many times what runs of one side differ by."""
_HOPE = 0.85
"""Where few are tried, one that is not much slower at first stays in: both of its runs may have been disturbed."""
_AGREE = 0.9
"""Runs of one candidate that differ by more were disturbed: own threshold."""
_PATIENCE_S = 20.0
_FIRST_SHARE = 0.6
"""Of the budget, for the first rounds."""
_DEALS, _CHANCE = 2000, 0.006
"""Five runs against five are dealt out in 252 ways: the best of them happens by chance once in 250 times."""
_LEAST_GAIN = 0.1
"""Less is not worth a setting that the next version may make wrong: own threshold."""


class Trial(Struct, frozen=True):
    """What one candidate gave, run by run, in GB/s (or 1/s for a barrier)."""

    settings: Settings
    speeds: tuple[float, ...]
    failed: str = ""


class Sweep(Struct, frozen=True):
    """The outcome: the settings to use, or none."""

    winner: Settings
    gain: float
    noise: float
    trials: Sequence[Trial]
    rematch: tuple[Trial, Trial] | None
    reason: str
    seconds: float


def candidates(
    backend: str, *, nodes: int, gpus: int, interfaces: Sequence[str], hcas: Sequence[str]
) -> list[Settings]:
    """What this hardware allows, one change at a time."""
    if backend == "gloo":
        return [{"GLOO_SOCKET_IFNAME": name} for name in interfaces] if nodes > 1 and len(interfaces) > 1 else []
    found: list[Settings] = [{"NCCL_ALGO": a} for a in ("Ring", "Tree")]
    if gpus > 4:
        found.append({"NCCL_ALGO": "NVLS"})
    found += [{"NCCL_PROTO": p} for p in ("Simple", "LL128", "LL")]
    found += [{"NCCL_MIN_NCHANNELS": str(n)} for n in (8, 16, 32)]
    found += [{"NCCL_NTHREADS": str(n)} for n in (256, 512)]
    found += [{"NCCL_BUFFSIZE": str(n << 20)} for n in (8, 16)]
    if nodes > 1:
        found += [{"NCCL_SOCKET_IFNAME": name} for name in interfaces] if len(interfaces) > 1 else []
        if hcas:
            found += [{"NCCL_IB_HCA": name} for name in hcas] if len(hcas) > 1 else []
            found += [{"NCCL_IB_QPS_PER_CONNECTION": "4"}]
        else:
            found += [
                {"NCCL_SOCKET_NTHREADS": str(t), "NCCL_NSOCKS_PERTHREAD": str(s)} for t, s in ((2, 2), (4, 4), (8, 1))
            ]
    return found


def hardware(engine: Engine, python: str) -> tuple[list[str], list[str]]:
    """The network interfaces and RDMA adapters that all hosts have and could use."""
    with host_helpers(engine, [python, *AGENT]) as everyone:
        replies = everyone.ask_all({"do": "probe", "probes": ["interfaces", "rdma"]}, 60.0)
    told = [reply.result for reply in replies.values() if isinstance(reply.result, dict)]
    return (
        _common([[i["name"] for i in _list(t, "interfaces", "interfaces") if _usable(i)] for t in told]),
        _common([[p["device"] for p in _list(t, "rdma", "ports") if p.get("state") == "ACTIVE"] for t in told]),
    )


def _list(told: Mapping[str, Any], probe: str, key: str) -> list[dict[str, Any]]:
    value = (told.get(probe) or {}).get("value") or {}
    return [row for row in value.get(key) or [] if isinstance(row, dict)]


def _usable(interface: Mapping[str, Any]) -> bool:
    """Up, with an IPv4 address, and neither the loopback nor a bridge of containers."""
    own = [a for a in interface.get("addresses") or [] if ":" not in str(a) and not str(a).startswith("127.")]
    bridge = interface.get("bridge") or str(interface.get("name")).startswith(_NOT_A_NETWORK)
    return bool(own) and not bridge and interface.get("state") in ("up", "unknown")


def _common(names: Sequence[Sequence[str]]) -> list[str]:
    return [name for name in names[0] if all(name in own for own in names)] if names else []


def sweep(
    run: Callable[[Settings], float],
    tried: Sequence[Settings],
    budget_s: float,
    tell: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """`run` gives the speed of one fresh run with these settings; it may raise. The budget is kept."""
    race = _Race(run, {-1: DEFAULTS, **dict(enumerate(tried))}, budget_s, tell, time.monotonic())
    if not tried:
        return race.keep("there is nothing to try")
    speeds: dict[int, list[float]] = {number: [] for number in race.settings}
    order = list(speeds)
    for _ in range(_ROUNDS):
        for number in order:
            if not speeds[-1] or race.affords(1, _FIRST_SHARE):
                race.attempt(number, speeds[number])
            if -1 in race.failed:
                raise UnreadableError(f"the run with the defaults failed: {race.failed[-1]}")
        # Where the time runs out, the most promising have had their second run.
        order = [-1, *sorted((n for n in order if n >= 0 and speeds[n]), key=lambda n: -max(speeds[n]))]
    for number in order:
        # Two runs that differ were disturbed, perhaps both: a third one tells before anything is left out.
        if len(own := speeds[number]) == _ROUNDS and min(own) < _AGREE * max(own) and race.affords(1, _FIRST_SHARE):
            race.attempt(number, own)
    race.trials = [Trial(race.settings[n], tuple(speeds[n]), race.failed.get(n, "")) for n in speeds]
    # A run can be disturbed and slower than it should be, hardly faster: the best of each counts.
    few = len(tried) <= _FINALISTS
    least = max(speeds[-1]) * (_HOPE if few else 1.0)
    promising = [n for n in order if n >= 0 and n not in race.failed and max(speeds[n]) > least]
    promising.sort(key=lambda n: -max(speeds[n]))
    if not promising:
        return race.keep("nothing was faster than the defaults", noise=_noise(speeds[-1]))
    if few:
        # Nobody was chosen among many: the first runs count.
        return _rematch(race, promising, {n: speeds[n] for n in (-1, *promising)})
    finalists = promising[: max(1, min(_FINALISTS, race.affordable() // _LOOKS[0] - 1))]
    return _rematch(race, finalists, {n: [] for n in (-1, *finalists)})


class _Race(Struct):
    """Runs within a budget of time."""

    run: Callable[[Settings], float]
    settings: Mapping[int, Settings]
    budget_s: float
    tell: Callable[[str], None]
    began: float
    failed: dict[int, str] = field(default_factory=dict)
    trials: Sequence[Trial] = ()
    took: list[float] = field(default_factory=list)

    def attempt(self, number: int, into: list[float]) -> None:
        if number in self.failed:
            return
        name, start = words(self.settings[number]), time.monotonic()
        try:
            into.append(self.run(self.settings[number]))
            self.tell(f"{name}: {into[-1]:.3f} GB/s")
        except WhichrankError as error:
            self.failed[number] = error.message
            self.tell(f"{name}: {error.message}")
        self.took.append(time.monotonic() - start)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def each_s(self) -> float:
        return median(self.took) if self.took else 0.0

    def affordable(self) -> int:
        """How many more runs fit into the budget."""
        return int((self.budget_s - self.seconds) / max(self.each_s(), 1e-9))

    def affords(self, runs: int, share: float = 1.0) -> bool:
        return self.seconds + runs * self.each_s() <= share * self.budget_s

    def keep(self, reason: str, **more: Any) -> Sweep:
        told = {"gain": 0.0, "noise": 0.0, "rematch": None, **more}
        return Sweep(DEFAULTS, trials=self.trials, reason=reason, seconds=self.seconds, **told)


def _rematch(race: _Race, finalists: Sequence[int], results: dict[int, list[float]]) -> Sweep:
    """Fresh runs of the best and of the defaults, in turn: the first look chose among many, and luck is in it."""
    best = finalists[0]
    won = False
    while (count := min(map(len, results.values()))) < _LOOKS[-1] and race.affords(len(results)):
        for side in list(results) if count % 2 else list(results)[::-1]:
            race.attempt(side, results[side])
        if race.seconds >= race.budget_s:
            break  # the last run may have been cut by the end of the time
        sides = [n for n in results if n >= 0 and n not in race.failed]
        if not sides or -1 in race.failed:
            failed = race.failed.get(-1) or race.failed[best]
            return race.keep(f"a run of the rematch failed: {failed}")
        results = {n: results[n] for n in (-1, *sides)}
        best = max(sides, key=lambda n: _speed(results[n]))
        count = min(map(len, results.values()))
        if count >= _AT_LEAST:
            won = _far_apart(results[best], results[-1])
            if won:
                break
            # Whose fastest run is clearly behind another has no chance any more.
            results = {n: own for n, own in results.items() if n < 0 or _gain(results[best], [max(own)]) < _LEAST_GAIN}
        if count in _LOOKS:
            won = _proved(results[best], results[-1], len(results) - 1)
            if won or _gain([max(results[best])], results[-1]) < _LEAST_GAIN:
                break  # proved, or not even its fastest run makes a gain of it
    old, new, name = results[-1], results[best], words(race.settings[best])
    gain = _gain(new, old)
    told = {
        "gain": gain, "noise": max(_noise(old), _noise(new)),
        "rematch": (Trial(DEFAULTS, tuple(old)), Trial(race.settings[best], tuple(new))),
    }  # fmt: skip
    if won:
        return replace(race.keep("won the rematch", **told), winner=race.settings[best])
    if gain < _LEAST_GAIN / 3:
        return race.keep("nothing was faster than the defaults", **told)
    if min(len(new), len(old)) < _LOOKS[0]:
        met = 1 + min(_FINALISTS, len(race.settings) - 1)
        enough = 1.2 * race.each_s() * (_ROUNDS * len(race.settings) + _LOOKS[0] * met)
        reason = f"{name} looked faster, and the time was too short to prove it; try --budget {enough:.0f}"
        return race.keep(reason, **told)
    return race.keep(f"{name} looked faster and did not win the rematch", **told)


def _speed(runs: Sequence[float]) -> float:
    """Of several runs: the mean of the upper half. What disturbs a run makes it slower, never faster."""
    upper = sorted(runs)[len(runs) // 2 :]
    return sum(upper) / len(upper) if upper else 0.0


def _gain(new: Sequence[float], old: Sequence[float]) -> float:
    return _speed(new) / _speed(old) - 1 if new and _speed(old) else 0.0


def _proved(new: Sequence[float], old: Sequence[float], rivals: int = 1) -> bool:
    """Whether chance is out of the question: how often would runs dealt out at random differ as much?

    The best of several `rivals` is lucky more often.
    """
    gain = _gain(new, old)
    if gain < _LEAST_GAIN:
        return False
    if len(new) < _LOOKS[1] and gain < 1.5 * _LEAST_GAIN:
        return False  # few runs must show more
    dice = random.Random(0)  # noqa: S311 - the same answer for the same runs
    both, extreme = [*new, *old], 0
    for _ in range(_DEALS):
        dice.shuffle(both)
        extreme += _speed(both[: len(new)]) - _speed(both[len(new) :]) >= _speed(new) - _speed(old)
    return extreme <= _CHANCE * _DEALS / rivals


def _far_apart(new: Sequence[float], old: Sequence[float]) -> bool:
    """Whether the runs with the setting are far above the fastest without, against what runs differ by anyway.

    Of four runs and more the slowest quarter is left out: a disturbed run would hide a clear gain.
    """
    if _gain(new, old) < 1.5 * _LEAST_GAIN:
        return False
    new, old = (sorted(side)[len(side) // 4 :] for side in (new, old))
    spread = max(max(side) - min(side) for side in (new, old))
    return min(new) - max(old) > _FAR_APART * spread


def _noise(speeds: Sequence[float]) -> float:
    """Typical distance from the median, as a share of it."""
    if len(speeds) < 2:
        return 0.0
    middle = median(speeds)
    return median(abs(speed - middle) for speed in speeds) / middle if middle else 0.0


def words(settings: Settings) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items()) or "defaults"


def runner(engine: Engine, plan: Plan, python: str, budget_s: float) -> Callable[[Settings], float]:
    """Speed of a fresh job with the settings: the geometric mean of the bandwidths of all results.

    Settings may make a job hang: it costs a few times what a run takes, never the whole budget.
    """
    end = time.monotonic() + budget_s
    longest = 0.0

    def run(settings: Settings) -> float:
        nonlocal longest
        began = time.monotonic()
        patience = max(_PATIENCE_S, 4 * longest) if longest else plan.limits.start_s
        whole = max(1.0, min(plan.limits.whole_s, patience, end - began))
        limits = replace(plan.limits, whole_s=whole)
        done = measure(engine, replace(plan, settings=settings, limits=limits), python)
        if done.stopped:
            raise UnreadableError(done.stopped)
        speeds = [r.busbw_gbs for r in done.results if r.busbw_gbs] or [1e6 / r.time_us for r in done.results]
        if not speeds or any(r.correct is False for r in done.results):
            raise UnreadableError("wrong or no results with these settings")
        longest = max(longest, time.monotonic() - began)
        return geometric_mean(speeds)

    return run

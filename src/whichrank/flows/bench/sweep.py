"""Which settings really help: candidates are tried side by side with the defaults, and the best must win a rematch.

Runs differ by themselves, and some are disturbed. So everything is measured in interleaved rounds, the best are
compared with the defaults once more on fresh runs, and only a gain that chance can't explain is told.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

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
_FIRST_SHARE = 0.6
"""Of the budget, for the first rounds."""
_DEALS, _CHANCE = 2000, 0.006
"""Five runs against five are dealt out in 252 ways: the best of them happens by chance once in 250 times."""
_LEAST_GAIN = 0.1
"""Less is not worth a setting that the next version may make wrong: own threshold."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one candidate gave, run by run, in GB/s (or 1/s for a barrier)."""

    settings: Settings
    speeds: tuple[float, ...]
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Sweep:
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
    """`run` gives the speed of one fresh run with these settings; it may raise."""
    began = time.monotonic()
    by_number = {-1: DEFAULTS, **dict(enumerate(tried))}
    speeds: dict[int, list[float]] = {number: [] for number in by_number}
    failed: dict[int, str] = {}

    def attempt(number: int, into: list[float]) -> None:
        try:
            into.append(run(by_number[number]))
            tell(f"{words(by_number[number])}: {into[-1]:.3f}")
        except WhichrankError as error:
            failed[number] = error.message
            tell(f"{words(by_number[number])}: {error.message}")

    order = list(by_number)
    for _ in range(_ROUNDS):
        for number in order:
            if number not in failed and (time.monotonic() - began < budget_s * _FIRST_SHARE or not speeds[-1]):
                attempt(number, speeds[number])
        if -1 in failed:
            raise UnreadableError(f"the run with the defaults failed: {failed[-1]}")
        # Where the time runs out, the most promising have had their second run.
        order = [-1, *sorted((n for n in order if n >= 0 and speeds[n]), key=lambda n: -max(speeds[n]))]
    trials = [Trial(by_number[n], tuple(speeds[n]), failed.get(n, "")) for n in by_number]
    # A run can be disturbed and slower than it should be, hardly faster: the best of each counts.
    promising = [n for n in order if n >= 0 and n not in failed and max(speeds[n]) > max(speeds[-1])]
    if not promising:
        reason, seconds = "nothing was faster than the defaults", time.monotonic() - began
        return Sweep(DEFAULTS, 0.0, _noise(speeds[-1]), trials, None, reason, seconds)
    runs = sum(len(own) for own in speeds.values())
    each_s = (time.monotonic() - began) / max(1, runs)
    affordable = int((budget_s - (time.monotonic() - began)) / max(each_s * _LOOKS[0], 1e-9)) - 1
    finalists = promising[: max(1, min(_FINALISTS, affordable))]
    return _rematch(attempt, finalists, by_number, trials, began, budget_s)


def _rematch(
    attempt: Callable[[int, list[float]], None], finalists: Sequence[int], by_number: Mapping[int, Settings],
    trials: Sequence[Trial], began: float, budget_s: float,
) -> Sweep:  # fmt: skip
    """Fresh runs of the best and of the defaults, in turn: the first look chose among many, and luck is in it."""
    results: dict[int, list[float]] = {number: [] for number in (-1, *finalists)}
    least = _LOOKS[0]
    best, reason = finalists[0], ""
    for number in range(_LOOKS[-1]):
        sides = list(results) if number % 2 else list(results)[::-1]
        for side in sides:
            attempt(side, results[side])
        count = min(len(own) for own in results.values())
        if number + 1 in _LOOKS:
            best = max(finalists, key=lambda n: _speed(results[n]))
            if count >= least and _proved(results[best], results[-1]):
                reason = "won the rematch"
                break
            if _gain(results[best], results[-1]) < _LEAST_GAIN / 3:
                break  # more runs would not make a gain of it
        if time.monotonic() - began > budget_s and number + 1 >= least:
            break
    old, new = results[-1], results[best]
    gain, noise = _gain(new, old), max(_noise(old), _noise(new))
    sides_told = Trial(DEFAULTS, tuple(old)), Trial(by_number[best], tuple(new))
    seconds = time.monotonic() - began
    if reason:
        return Sweep(by_number[best], gain, noise, trials, sides_told, reason, seconds)
    reason = f"{words(by_number[best])} looked faster and did not win the rematch"
    return Sweep(DEFAULTS, gain, noise, trials, sides_told, reason, seconds)


def _speed(runs: Sequence[float]) -> float:
    """Of several runs: the mean of the upper three quarters. What disturbs a run makes it slower, never faster."""
    upper = sorted(runs)[len(runs) // 4 :]
    return sum(upper) / len(upper) if upper else 0.0


def _gain(new: Sequence[float], old: Sequence[float]) -> float:
    return _speed(new) / _speed(old) - 1 if new and _speed(old) else 0.0


def _proved(new: Sequence[float], old: Sequence[float]) -> bool:
    """Whether chance is out of the question: how often would runs dealt out at random differ as much?"""
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
    return extreme <= _CHANCE * _DEALS


def _noise(speeds: Sequence[float]) -> float:
    """Typical distance from the median, as a share of it."""
    if len(speeds) < 2:
        return 0.0
    middle = median(speeds)
    return median(abs(speed - middle) for speed in speeds) / middle if middle else 0.0


def words(settings: Settings) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items()) or "defaults"


def runner(engine: Engine, plan: Plan, python: str) -> Callable[[Settings], float]:
    """Speed of a fresh job with the settings: the geometric mean of the bandwidths of all results."""

    def run(settings: Settings) -> float:
        done = measure(engine, replace(plan, settings=settings), python)
        speeds = [r.busbw_gbs for r in done.results if r.busbw_gbs] or [1e6 / r.time_us for r in done.results]
        if not speeds or any(r.correct is False for r in done.results):
            raise UnreadableError("wrong or no results with these settings")
        product = 1.0
        for speed in speeds:
            product *= speed ** (1 / len(speeds))
        return product

    return run

"""Which settings really help: candidates are tried side by side with the defaults, and the best must win a rematch.

Runs differ by themselves. So everything is measured in interleaved rounds, the weak are dropped early, and the winner
is compared with the defaults once more on fresh runs: only a gain that is larger than the noise of both is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from whichrank.fleet.engines import Engine
from whichrank.flows.bench.measure import Plan, measure
from whichrank.model.errors import UnreadableError, WhichrankError

Settings = Mapping[str, str]
DEFAULTS: Settings = {}
_ROUNDS, _REMATCH = 2, 5
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
        return [{"GLOO_SOCKET_IFNAME": name} for name in interfaces] if nodes > 1 or len(interfaces) > 1 else []
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


def sweep(
    run: Callable[[Settings], float],
    tried: Sequence[Settings],
    budget_s: float,
    tell: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """`run` gives the speed of one fresh run with these settings; it may raise."""
    began = time.monotonic()
    speeds: dict[int, list[float]] = {n: [] for n in range(-1, len(tried))}
    failed: dict[int, str] = {}
    by_number = {-1: DEFAULTS, **dict(enumerate(tried))}

    def attempt(number: int, into: list[float]) -> None:
        try:
            into.append(run(by_number[number]))
            tell(f"{words(by_number[number])}: {into[-1]:.3f}")
        except WhichrankError as error:
            failed[number] = error.message
            tell(f"{words(by_number[number])}: {error.message}")

    alive = list(by_number)
    for number_of_round in range(_ROUNDS):
        for number in alive:
            if time.monotonic() - began > budget_s * 0.6 and speeds[-1]:
                break
            if number not in failed:
                attempt(number, speeds[number])
        if -1 in failed:
            raise UnreadableError(f"the run with the defaults failed: {failed[-1]}")
        ranked = sorted((n for n in alive if n >= 0 and speeds[n] and n not in failed), key=lambda n: -max(speeds[n]))
        alive = [-1, *ranked[: max(2, len(ranked) >> (number_of_round + 1))]]
    trials = [Trial(by_number[n], tuple(speeds[n]), failed.get(n, "")) for n in by_number]
    best = next((n for n in alive if n >= 0 and n not in failed and median(speeds[n]) > median(speeds[-1])), None)
    if best is None:
        return Sweep(
            DEFAULTS,
            0.0,
            _noise(speeds[-1]),
            trials,
            None,
            "nothing was faster than the defaults",
            time.monotonic() - began,
        )
    return _rematch(attempt, best, by_number, trials, began, budget_s)


def _rematch(
    attempt: Callable[[int, list[float]], None], best: int, by_number: Mapping[int, Settings], trials: Sequence[Trial],
    began: float, budget_s: float,
) -> Sweep:  # fmt: skip
    """Fresh runs of both, in turn: the first look chose the best of many, and luck is among its reasons."""
    old: list[float] = []
    new: list[float] = []
    for number in range(_REMATCH):
        for side, into in ((-1, old), (best, new)) if number % 2 else ((best, new), (-1, old)):
            attempt(side, into)
        if time.monotonic() - began > budget_s and len(old) >= 3 and len(new) >= 3:
            break
    sides = Trial(DEFAULTS, tuple(old)), Trial(by_number[best], tuple(new))
    seconds = time.monotonic() - began
    if len(new) < 3 or len(old) < 3:
        return Sweep(DEFAULTS, 0.0, 0.0, trials, sides, "the winner did not run reliably", seconds)
    gain = median(new) / median(old) - 1
    noise = max(_noise(old), _noise(new))
    # Every run of the one above every run of the other but one: five against five by luck once in forty times.
    apart = sorted(new)[1 if len(new) > 4 else 0] > sorted(old)[-2 if len(old) > 4 else -1]
    if gain < _LEAST_GAIN or gain < noise or not apart:
        reason = f"{words(by_number[best])} looked faster and did not win the rematch"
        return Sweep(DEFAULTS, gain, noise, trials, sides, reason, seconds)
    return Sweep(by_number[best], gain, noise, trials, sides, "won the rematch", seconds)


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

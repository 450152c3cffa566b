"""What buckets of another size would return: all-reduces of gradients, merged or split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from whichrank.model.step_report import Advice
from whichrank.timeline.steps.buckets import FIRST, USUAL, Small, small_buckets
from whichrank.timeline.steps.collectives import payload
from whichrank.timeline.steps.matching import Matched
from whichrank.timeline.steps.merging import merged_buckets
from whichrank.timeline.steps.rebucketing import Backward, Predicted, caps
from whichrank.timeline.steps.scene import LEAST, Scene, gain_of, sure
from whichrank.timeline.steps.transfer_cost import Cost, costs

EVERY = 1 << 20
"""More all-reduces than a step has: all of them become one."""
WITHIN = 0.15
"""A step time that is not known better than this is not told."""
LARGEST_BUCKET = 512 << 20
"""All-reduces that are larger gain nothing from being merged."""


def bucket_advice(scene: Scene) -> list[Advice]:
    """Gradients in fewer and larger all-reduces, or in more and smaller ones where the recording tells of each."""
    if scene.backward is not None:
        return _replayed(scene, scene.backward)
    signs = scene.matched.ranks[0].signs
    known = costs(scene.play, scene.matched) if scene.play is not None else []
    if (small := small_buckets(scene.matched, signs)) is not None:
        words, setting, why = _to_fill(small)
        return [_larger(scene, words, setting, _merged(scene, known, EVERY, USUAL), known, "small-buckets", why)]
    sizes = [payload(what) or 0 for what in scene.matched.what if what.op == "all_reduce"]
    if not known or max(sizes) > LARGEST_BUCKET:
        return []
    best = max(((_merged(scene, known, together), together) for together in (2, 4, 8, EVERY)), key=_most)
    if best[0] is None or best[0].high < LEAST * scene.step_ns / 1e3:
        return []
    now = max(sizes) / (1 << 20)
    times = f"{best[1]} times as large" if best[1] < EVERY else "one for all gradients"
    wanted = now * best[1] if best[1] < EVERY else sum(sizes) / scene.steps / (1 << 20)
    if signs.get("forwards") or signs.get("fsdp_unshards") or signs.get("deepspeed"):
        setting = f"DDP bucket_cap_mb={max(1, round(wanted))}, DeepSpeed reduce_bucket_size, FSDP: wrap larger units"
    else:
        setting = "DistributedDataParallel, or one all_reduce of all gradients together (torch.cat)"
    return [_larger(scene, f"Use larger buckets: {times}.", setting, best[0], known, "buckets")]


def _replayed(scene: Scene, backward: Backward) -> list[Advice]:
    """The size with which a step takes the least time; the default, where smaller buckets than it return nothing."""
    small = small_buckets(scene.matched, scene.matched.ranks[0].signs)
    default = backward.predicted(scene.step_ns, backward.filled(USUAL, FIRST))
    if small is not None and default.likely <= scene.step_ns:
        words, setting, why = _to_fill(small)
        return [_told(scene, words, setting, _gained(scene, default), "small-buckets", [why, _price(backward)])]
    found = [(backward.predicted(scene.step_ns, backward.filled(cap)), cap) for cap in caps(backward)]
    enough = min(one.likely for one, _ in found) + LEAST * scene.step_ns
    best, cap = max((one for one in found if one[0].likely <= enough), key=lambda one: one[1])
    gain, now = _gained(scene, best), len(backward.recorded)
    if gain.likely < LEAST * scene.step_ns / 1e3 or best.buckets == now:
        return []
    words = f"Use {'larger' if best.buckets < now else 'smaller'} buckets: {best.buckets} instead of {now}."
    setting = f"DistributedDataParallel(bucket_cap_mb={cap / (1 << 20):.3g})"
    return [_told(scene, words, setting, gain, "buckets", [_price(backward)])]


def _gained(scene: Scene, one: Predicted) -> _Gain:
    likely, low, high = ((scene.step_ns - time) / 1e3 for time in (one.likely, one.high, one.low))
    return _Gain(likely, low, high)


def _price(backward: Backward) -> str:
    """What the recording tells of an all-reduce."""
    first, last = backward.prices[0], backward.prices[-1]
    calls = f"{first.per_call / 1e3:.0f}" + (f" to {last.per_call / 1e3:.0f}" if last != first else "")
    return f"an all-reduce costs {calls} µs and {1 / first.per_byte:.2f} GB/s here"


def _to_fill(small: Small) -> tuple[str, str, str]:
    """DDP's buckets were made smaller than they are by default: what to do, the setting, and why."""
    words = f"Fill DDP's buckets: {small.buckets} all-reduces per backward pass, {small.usual} by default."
    why = f"{small.bytes / (1 << 20):.1f} MB of gradients in buckets of {small.bytes / small.buckets / 1024:.0f} kB"
    return words, "DistributedDataParallel(bucket_cap_mb=25), the default", why


class _Gain(NamedTuple):
    """Microseconds per step: most likely, at least, at most."""

    likely: float
    low: float
    high: float


def _most(one: tuple[_Gain | None, int]) -> float:
    return one[0].likely if one[0] is not None else -1.0


def _merged(scene: Scene, known: Sequence[Cost], together: int, most: float = float("inf")) -> _Gain | None:
    """What fewer all-reduces return, by all that they may cost."""
    play = scene.play
    if play is None or not known:
        return None
    gains, fewer = [], 0
    for cost, lean in [(known[0], 0), *((cost, lean) for cost in known for lean in (1, -1))]:
        merged = merged_buckets(play, scene.matched, together, partial(cost.merged, lean=lean), most)
        gain = gain_of(scene, merged)
        if gain is None or merged is None:
            return None
        gains.append(gain)
        fewer = len(play.members) - len(merged.members)
    low, high = min(gains), max(gains)
    if scene.matched.ranks[0].on_device:
        return _Gain(gains[0], low, high)
    # On a host the call itself takes a core: at most the computation beside it gets all of that back.
    high += fewer / scene.steps * max(cost.per_call for cost in known) / 1e3
    high = min(high, scene.step_ns / 1e3)
    return _Gain((low + high) / 2, low, high)


def _larger(
    scene: Scene, words: str, setting: str, gain: _Gain | None, known: Sequence[Cost], key: str, *why: str
) -> Advice:
    """Advice on buckets: the gain where the recording tells it, otherwise why it does not."""
    told = [*why]
    if gain is None:
        told.append("too few all-reduces to tell what one costs")
        return Advice(words, setting, None, sure(scene, 0.5), "; ".join(told), key)
    cost = known[0]
    if np.isfinite(cost.error).all():
        rate = f"{1 / cost.per_byte:.2f} GB/s" if cost.per_byte else "nothing more for its bytes"
        told.append(f"an all-reduce costs {cost.per_call / 1e3:.0f} µs and {rate} here")
    return _told(scene, words, setting, gain, key, told)


def _told(scene: Scene, words: str, setting: str, gain: _Gain, key: str, told: list[str]) -> Advice:
    """The gain where it is known well enough, and what a step would take where it is not."""
    longest, shortest = (scene.step_ns / 1e3 - part for part in (gain.low, gain.high))
    within = longest - shortest <= 2 * WITHIN * (longest + shortest) / 2
    slowed = slowed_by(scene.matched)
    if not within:
        told.append(f"one recording can't tell: a step would take {shortest / 1e3:.3g} to {longest / 1e3:.3g} ms")
    if slowed > 1 + WITHIN:
        told.append(f"the recording made steps {slowed:.1f} times as long: the gain without it is not known")
    likely = gain.likely if within and slowed <= 1 + WITHIN else None
    return Advice(words, setting, likely, sure(scene, 0.5), "; ".join(told), key, (gain.low, gain.high))


def slowed_by(matched: Matched) -> float:
    """How many times as long steps took while they were recorded as before, on the rank that felt it most."""
    ratios = (
        one.signs.get("recorded_step_ns", 0.0) / one.signs.get("unrecorded_step_ns", np.inf) for one in matched.ranks
    )
    return max(ratios, default=0.0)

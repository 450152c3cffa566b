"""What a change would return, by replaying the steps with that change; the most rewarding first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from whichrank.facts.bandwidths import bus_factor
from whichrank.model.step_report import Advice, CollectiveShare
from whichrank.records.profiles.steps import CHECKPOINT, COLLECTOR, HOST, LOADER, SYNCHRONISING
from whichrank.timeline.steps import changes
from whichrank.timeline.steps.buckets import USUAL, Small, small_buckets
from whichrank.timeline.steps.collectives import payload
from whichrank.timeline.steps.intervals import median
from whichrank.timeline.steps.matching import Matched
from whichrank.timeline.steps.merging import merged_buckets
from whichrank.timeline.steps.replay import Play, run, span
from whichrank.timeline.steps.stragglers import Late, as_others
from whichrank.timeline.steps.transfer_cost import Cost, costs

LEAST = 0.01
"""Gains below this share of the step are not worth a word."""
CERTAIN = ("unused", "bucket-view", "no-sync", "small-buckets")
"""What the profile proves is told even where it returns little."""
TRUSTED = 0.05
"""A replay that misses the recorded time by more than this says little about other times."""
EVERY = 1 << 20
"""More all-reduces than a step has: all of them become one."""
WITHIN = 0.15
"""A step time that is not known better than this is not told."""
LARGEST_BUCKET = 512 << 20
"""All-reduces that are larger gain nothing from being merged."""
_IDLE = {
    LOADER: (
        "Load data faster: ranks stand idle while they wait for the next batch.",
        "DataLoader(num_workers=…, prefetch_factor=…, pin_memory=True, persistent_workers=True)", 0.7, "input",
    ),
    CHECKPOINT: (
        "Write checkpoints beside the training instead of in it.",
        "torch.distributed.checkpoint.async_save(…)", 0.7, "checkpoint",
    ),
    COLLECTOR: (
        "Run Python's garbage collector on all ranks at the same steps, or rarely.",
        "gc.disable(); gc.collect() every few hundred steps", 0.7, "gc",
    ),
    SYNCHRONISING: (
        "Avoid calls that wait for the device in each step (.item(), .cpu(), print of a tensor, synchronize()).",
        "log with .detach() every N steps; copy with non_blocking=True", 0.5, "sync",
    ),
    HOST: (
        "Launch faster: the device waits for the host. Fuse or capture the step, or give each rank more work.",
        "torch.compile(mode='reduce-overhead'), CUDA graphs, foreach/fused optimizers, a larger batch", 0.5, "launch",
    ),
}  # fmt: skip
_REMEDY = {
    "data-loader": "DataLoader(num_workers=…, prefetch_factor=…) on that rank; its data source and CPU",
    "checkpoint": "torch.distributed.checkpoint.async_save(…)",
    "garbage-collection": "gc.disable(); gc.collect() at the same step on all ranks",
}


class Scene(Struct, frozen=True):
    """What advice is worked out from."""

    matched: Matched
    play: Play | None
    recorded: float | None
    """The replay of what was recorded."""
    error: float
    """How far that is from the truth, as a share."""
    steps: int
    step_ns: float
    late: Sequence[Late]
    collectives: Sequence[CollectiveShare]


def advise(scene: Scene) -> list[Advice]:
    """Everything that would return something."""
    whole = not any(one.ends_early for one in scene.matched.ranks)
    found = [
        *_level(scene), *(_idle(scene) if whole else ()), *_overlap(scene), *_prefetch(scene), *_bandwidth(scene),
        *_buckets(scene), *_batch(scene), *_settings(scene),
    ]  # fmt: skip
    worth = [
        a
        for a in found
        if a.gain_us_per_step is None or a.gain_us_per_step * 1e3 >= LEAST * scene.step_ns or a.id in CERTAIN
    ]
    return sorted(worth, key=lambda a: -(a.gain_us_per_step or 0.0))


def _gain(scene: Scene, play: Play | None) -> float | None:
    """Microseconds per step that the changed play is shorter by."""
    if play is None or scene.recorded is None:
        return None
    changed = span(run(play))
    return None if changed is None else max(0.0, scene.recorded - changed) / scene.steps / 1e3


def _sure(scene: Scene, confidence: float) -> float:
    return round(confidence if scene.error <= TRUSTED else confidence / 2, 2)


def _level(scene: Scene) -> list[Advice]:
    """No straggler."""
    if not scene.late or scene.play is None:
        return []
    play = scene.play
    for late in scene.late:
        own, begin = as_others(scene.play, late.index)
        play = changes.with_own(play, late.index, own, begin)
    gain = _gain(scene, play)
    if gain is None:
        return []
    ranks = ", ".join(str(scene.matched.ranks[late.index].rank) for late in scene.late)
    first = scene.late[0]
    words = f"Bring rank{'s' if len(scene.late) > 1 else ''} {ranks} level with the others ({first.reason})."
    return [Advice(words, _REMEDY.get(first.reason), gain, _sure(scene, 0.8), first.doing, "straggler")]


def _idle(scene: Scene) -> list[Advice]:
    """Less time in what keeps devices idle on all ranks."""
    found = []
    for reason, (words, setting, confidence, key) in _IDLE.items():
        idle = np.array([float(one.idle[:, reason].sum()) for one in scene.matched.ranks])
        everywhere = float(median(idle)) / scene.steps
        if everywhere < LEAST * scene.step_ns or (reason == HOST and not scene.matched.ranks[0].on_device):
            continue
        gain = _gain(scene, changes.without_idle(scene.play, scene.matched, reason)) if scene.play else None
        gain = everywhere / 1e3 if gain is None else gain
        why = f"{everywhere / 1e6:.1f} ms of each step on the typical rank"
        found.append(Advice(words, setting, gain, _sure(scene, confidence), why, key))
    return found


def _overlap(scene: Scene) -> list[Advice]:
    """Communication behind computation."""
    if scene.play is None:
        return []
    gain = _gain(scene, changes.without_waits(scene.play))
    if gain is None:
        return []
    level = sum(late.cost_ns or 0.0 for late in scene.late) / 1e3
    gain = max(0.0, gain - level)
    signs = scene.matched.ranks[0].signs
    if signs.get("fsdp_unshards"):
        setting = "FSDP: backward_prefetch=BACKWARD_PRE, forward_prefetch=True, limit_all_gathers=True"
    elif signs.get("deepspeed"):
        setting = "DeepSpeed: overlap_comm=true, reduce_bucket_size, allgather_bucket_size"
    elif signs.get("forwards"):
        setting = "DDP: bucket_cap_mb, gradient_as_bucket_view=True"
    else:
        setting = "async_op=True, and wait() only where the result is needed"
    why = "an upper bound: no rank ever waits for a collective, all else the same"
    return [Advice("Overlap communication with computation.", setting, gain, _sure(scene, 0.4), why, "overlap")]


def _prefetch(scene: Scene) -> list[Advice]:
    """FSDP's parameters one unit ahead of their use."""
    if scene.play is None or not scene.matched.ranks[0].signs.get("fsdp_unshards"):
        return []
    gain = _gain(scene, changes.prefetched(scene.play, scene.matched))
    words = "Gather FSDP's parameters one unit ahead."
    setting = "FSDP(forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE); fully_shard: "
    setting += "set_modules_to_forward_prefetch([…])"
    why = "every all-gather begins together with the one before it, all else the same; one more unit is in memory"
    return [Advice(words, setting, gain, _sure(scene, 0.4), why, "prefetch")] if gain is not None else []


def _batch(scene: Scene) -> list[Advice]:
    """More samples for the same gradients; what is gained is told per step of today's size."""
    signs = scene.matched.ranks[0].signs
    if scene.play is None or scene.recorded is None:
        return []
    if not any(signs.get(key) for key in ("forwards", "fsdp_unshards", "deepspeed")):
        return []  # collectives that move activations grow with the batch
    twice = span(run(changes.twice_the_batch(scene.play, scene.matched)))
    if twice is None:
        return []
    gain = max(0.0, scene.recorded - twice / 2) / scene.steps / 1e3
    why = "twice the samples per step, gradients reduced once for them: time per two of today's steps, halved"
    words = "Use a larger batch if memory and convergence allow (twice: the gain), or accumulate gradients."
    setting = "batch_size, or model.no_sync() in all rounds of an accumulation but the last"
    return [Advice(words, setting, gain, _sure(scene, 0.4), why, "batch")]


def _bandwidth(scene: Scene) -> list[Advice]:
    """Collectives as fast as this hardware usually is."""
    slow = {
        (s.op, s.bytes): s
        for s in scene.collectives
        if s.busbw_gbs and s.expected_gbs and s.busbw_gbs < 0.7 * s.expected_gbs
    }
    if not slow or scene.play is None:
        return []
    faster = {}
    for op, time in scene.play.transfer.items():
        what = scene.matched.what[op]
        share = slow.get((what.op, payload(what)))
        if share and share.expected_gbs and share.ranks and share.bytes:
            faster[op] = min(time, share.bytes / share.expected_gbs * bus_factor(what.op, share.ranks))
    gain = _gain(scene, changes.with_transfers(scene.play, faster))
    worst = min(slow.values(), key=lambda s: (s.busbw_gbs or 0) / (s.expected_gbs or 1))
    why = f"{worst.op} of {worst.bytes} bytes moves {worst.busbw_gbs:.0f} GB/s, {worst.expected_gbs:.0f} are usual"
    words = "Find out why collectives are slower than this hardware allows."
    return [Advice(words, "whichrank bench", gain, _sure(scene, 0.5), why, "bandwidth")]


def _buckets(scene: Scene) -> list[Advice]:
    """Fewer, larger all-reduces."""
    signs = scene.matched.ranks[0].signs
    known = costs(scene.play, scene.matched) if scene.play is not None else []
    if (small := small_buckets(scene.matched, signs)) is not None:
        return [_filled(scene, small, known)]
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


def _filled(scene: Scene, small: Small, known: Sequence[Cost]) -> Advice:
    """DDP's buckets were made smaller than they are by default."""
    words = f"Fill DDP's buckets: {small.buckets} all-reduces per backward pass, {small.usual} by default."
    why = f"{small.bytes / (1 << 20):.1f} MB of gradients in buckets of {small.bytes / small.buckets / 1024:.0f} kB"
    setting = "DistributedDataParallel(bucket_cap_mb=25), the default"
    return _larger(scene, words, setting, _merged(scene, known, EVERY, USUAL), known, "small-buckets", why)


class _Gain(Struct, frozen=True):
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
        gain = _gain(scene, merged)
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
        return Advice(words, setting, None, _sure(scene, 0.5), "; ".join(told), key)
    cost = known[0]
    if np.isfinite(cost.error).all():
        rate = f"{1 / cost.per_byte:.2f} GB/s" if cost.per_byte else "nothing more for its bytes"
        told.append(f"an all-reduce costs {cost.per_call / 1e3:.0f} µs and {rate} here")
    longest, shortest = (scene.step_ns / 1e3 - part for part in (gain.low, gain.high))
    within = longest - shortest <= 2 * WITHIN * (longest + shortest) / 2
    slowed = max((one.signs.get("recorded_step_ns", 0.0) / one.signs.get("unrecorded_step_ns", np.inf)
                  for one in scene.matched.ranks), default=0.0)  # fmt: skip
    if not within:
        told.append(f"one recording can't tell: a step would take {shortest / 1e3:.3g} to {longest / 1e3:.3g} ms")
    if slowed > 1 + WITHIN:
        told.append(f"the recording made steps {slowed:.1f} times as long: the gain without it is not known")
    likely = gain.likely if within and slowed <= 1 + WITHIN else None
    return Advice(words, setting, likely, _sure(scene, 0.5), "; ".join(told), key, (gain.low, gain.high))


def _settings(scene: Scene) -> list[Advice]:
    """Settings that people get wrong, as the profile shows them."""
    signs = {
        key: float(median([one.signs.get(key, 0.0) for one in scene.matched.ranks]))
        for one in scene.matched.ranks
        for key in one.signs
    }
    found = []
    if signs.get("unused_searches"):
        why = f"DDP searches the graph for unused parameters {signs['unused_searches']:.0f} times per step, "
        why += "and reduces one more tensor to tell the other ranks"
        gain = signs.get("unused_searches_ns", 0.0) / 1e3
        words = "Turn off find_unused_parameters if every parameter is used in every step."
        found.append(Advice(words, "DistributedDataParallel(find_unused_parameters=False)", gain, 0.6, why, "unused"))
    if signs.get("bucket_copies") and signs.get("forwards"):
        why = f"{signs['bucket_copies']:.0f} copies between gradients and buckets per step"
        gain = signs.get("bucket_copies_ns", 0.0) / 1e3
        words = "Let gradients live in DDP's buckets."
        found.append(
            Advice(words, "DistributedDataParallel(gradient_as_bucket_view=True)", gain, 0.6, why, "bucket-view")
        )
    if signs.get("pageable_copies"):
        why = f"{signs['pageable_copies']:.0f} copies from or to pageable memory per step; each stops the host"
        words = "Copy from pinned memory, without waiting."
        setting = "DataLoader(pin_memory=True), tensor.to(device, non_blocking=True)"
        found.append(Advice(words, setting, signs.get("pageable_ns", 0.0) / 1e3, 0.6, why, "pageable"))
    if signs.get("items", 0.0) >= 1 and scene.matched.ranks[0].on_device:
        why = f"{signs['items']:.0f} values are read back from the device per step (.item(), float(tensor), if tensor:)"
        words = "Don't read values back in every step: each one waits for all work that was launched before."
        setting = "collect losses with .detach() and read them every N steps"
        # The call waits for work that has to be done anyway; what it costs is the time in which the device has none.
        idle = float(median([float(one.idle.sum()) / max(1, len(one.ids)) for one in scene.matched.ranks]))
        gain = min(signs.get("items_ns", 0.0), idle) / 1e3
        found.append(Advice(words, setting, gain, 0.5, why, "item"))
    forwards, optimizer = signs.get("forwards", 0.0), signs.get("optimizer_steps", 0.0)
    if optimizer > 0 and forwards / optimizer >= 1.9 and signs.get("reducing_forwards", 0.0) / optimizer >= 1.9:
        found += _accumulation(scene, round(forwards / optimizer))
    return found


def _accumulation(scene: Scene, rounds: int) -> list[Advice]:
    """Gradients that are accumulated, and yet reduced in every round."""
    gain = _gain(scene, changes.without_waits(scene.play)) if scene.play is not None else None
    gain = gain * (rounds - 1) / rounds if gain is not None else None
    why = f"{rounds} backward passes per optimizer step, and all-reduces in each of them"
    words = "Reduce gradients only in the last backward pass of an accumulation."
    return [Advice(words, "with model.no_sync(): … in all rounds but the last", gain, 0.4, why, "no-sync")]

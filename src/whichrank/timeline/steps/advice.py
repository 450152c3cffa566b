"""What a change would return, by replaying the steps with that change; the most rewarding first."""

from __future__ import annotations

import numpy as np

from whichrank.facts.hardware.bandwidth import bus_factor
from whichrank.model.step_report import Advice
from whichrank.records.profiles.steps import CHECKPOINT, COLLECTOR, HOST, LOADER, SYNCHRONISING
from whichrank.timeline.steps import changes
from whichrank.timeline.steps.bucket_advice import bucket_advice
from whichrank.timeline.steps.collectives import payload
from whichrank.timeline.steps.intervals import median
from whichrank.timeline.steps.replay import run, span
from whichrank.timeline.steps.scene import LEAST, Scene, gain_of, sure
from whichrank.timeline.steps.stragglers import as_others

CERTAIN = ("unused", "bucket-view", "no-sync", "small-buckets")
"""What the profile proves is told even where it returns little."""
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


def advise(scene: Scene) -> list[Advice]:
    """Everything that would return something."""
    whole = not any(one.ends_early for one in scene.matched.ranks)
    found = [
        *_level(scene), *(_idle(scene) if whole else ()), *_overlap(scene), *_prefetch(scene), *_bandwidth(scene),
        *bucket_advice(scene), *_batch(scene), *_settings(scene),
    ]  # fmt: skip
    worth = [
        a
        for a in found
        if a.gain_us_per_step is None or a.gain_us_per_step * 1e3 >= LEAST * scene.step_ns or a.id in CERTAIN
    ]
    return sorted(worth, key=lambda a: -(a.gain_us_per_step or 0.0))


def _level(scene: Scene) -> list[Advice]:
    """No straggler."""
    if not scene.late or scene.play is None:
        return []
    play = scene.play
    for late in scene.late:
        own, begin = as_others(scene.play, late.index)
        play = changes.with_own(play, late.index, own, begin)
    gain = gain_of(scene, play)
    if gain is None:
        return []
    ranks = ", ".join(str(scene.matched.ranks[late.index].rank) for late in scene.late)
    first = scene.late[0]
    words = f"Bring rank{'s' if len(scene.late) > 1 else ''} {ranks} level with the others ({first.reason})."
    return [Advice(words, _REMEDY.get(first.reason), gain, sure(scene, 0.8), first.doing, "straggler")]


def _idle(scene: Scene) -> list[Advice]:
    """Less time in what keeps devices idle on all ranks."""
    found = []
    for reason, (words, setting, confidence, key) in _IDLE.items():
        idle = np.array([float(one.idle[:, reason].sum()) for one in scene.matched.ranks])
        everywhere = float(median(idle)) / scene.steps
        if everywhere < LEAST * scene.step_ns or (reason == HOST and not scene.matched.ranks[0].on_device):
            continue
        gain = gain_of(scene, changes.without_idle(scene.play, scene.matched, reason)) if scene.play else None
        gain = everywhere / 1e3 if gain is None else gain
        why = f"{everywhere / 1e6:.1f} ms of each step on the typical rank"
        found.append(Advice(words, setting, gain, sure(scene, confidence), why, key))
    return found


def _overlap(scene: Scene) -> list[Advice]:
    """Communication behind computation."""
    if scene.play is None:
        return []
    gain = gain_of(scene, changes.without_waits(scene.play))
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
    return [Advice("Overlap communication with computation.", setting, gain, sure(scene, 0.4), why, "overlap")]


def _prefetch(scene: Scene) -> list[Advice]:
    """FSDP's parameters one unit ahead of their use."""
    if scene.play is None or not scene.matched.ranks[0].signs.get("fsdp_unshards"):
        return []
    gain = gain_of(scene, changes.prefetched(scene.play, scene.matched))
    words = "Gather FSDP's parameters one unit ahead."
    setting = "FSDP(forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE); fully_shard: "
    setting += "set_modules_to_forward_prefetch([…])"
    why = "every all-gather begins together with the one before it, all else the same; one more unit is in memory"
    return [Advice(words, setting, gain, sure(scene, 0.4), why, "prefetch")] if gain is not None else []


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
    return [Advice(words, setting, gain, sure(scene, 0.4), why, "batch")]


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
            faster[op] = min(time, share.bytes / share.expected_gbs * (bus_factor(what.op, share.ranks) or 1.0))
    gain = gain_of(scene, changes.with_transfers(scene.play, faster))
    worst = min(slow.values(), key=lambda s: (s.busbw_gbs or 0) / (s.expected_gbs or 1))
    why = f"{worst.op} of {worst.bytes} bytes moves {worst.busbw_gbs:.0f} GB/s, {worst.expected_gbs:.0f} are usual"
    words = "Find out why collectives are slower than this hardware allows."
    return [Advice(words, "whichrank bench", gain, sure(scene, 0.5), why, "bandwidth")]


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
    gain = gain_of(scene, changes.without_waits(scene.play)) if scene.play is not None else None
    gain = gain * (rounds - 1) / rounds if gain is not None else None
    why = f"{rounds} backward passes per optimizer step, and all-reduces in each of them"
    words = "Reduce gradients only in the last backward pass of an accumulation."
    return [Advice(words, "with model.no_sync(): … in all rounds but the last", gain, 0.4, why, "no-sync")]

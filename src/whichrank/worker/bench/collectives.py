"""Collectives as a benchmark runs them: buffers sized as nccl-tests print them, one call, its result checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist


class Prepared(NamedTuple):
    """One collective, ready to be called again and again."""

    octets: int
    """As nccl-tests prints the size."""
    call: Callable[[], None]
    reset: Callable[[], None]
    """Fill the buffers anew: a reduction in place grows with every call."""
    right: Callable[[], bool]
    """Whether the result of one call after a reset is right on this rank."""


def prepare(name: str, octets: int, dtype: Any, device: Any) -> Prepared:
    """By name; raises RuntimeError or NotImplementedError where the backend lacks it."""
    world = dist.get_world_size()
    item = torch.empty((), dtype=dtype).element_size()
    # Whole elements for every rank, as nccl-tests rounds.
    count = max(1, octets // item // world) * world
    return _MAKERS[name](count, dtype, device, world, dist.get_rank())


def _pattern(count: int, dtype: Any, device: Any) -> Any:
    """Small whole numbers: sums are exact in every type."""
    return (torch.arange(count, device=device, dtype=torch.int64) % 7).to(dtype)


def _all_reduce(count: int, dtype: Any, device: Any, world: int, rank: int) -> Prepared:
    base = _pattern(count, dtype, device)
    buffer = torch.empty_like(base)
    want = base.double() * world + world * (world - 1) / 2

    def reset() -> None:
        buffer.zero_()  # whatever is summed up in place again and again must not overflow

    def right() -> bool:
        buffer.copy_(base + rank)
        dist.all_reduce(buffer)
        return bool(torch.equal(buffer.double(), want.to(dtype).double()))

    return Prepared(base.nbytes, lambda: dist.all_reduce(buffer), reset, right)


def _all_gather(count: int, dtype: Any, device: Any, world: int, rank: int) -> Prepared:
    own = _pattern(count // world, dtype, device) + rank
    whole = torch.empty(count, dtype=dtype, device=device)

    def right() -> bool:
        whole.fill_(-1)
        dist.all_gather_into_tensor(whole, own)
        want = torch.cat([own - rank + other for other in range(world)])
        return bool(torch.equal(whole, want))

    return Prepared(whole.nbytes, lambda: dist.all_gather_into_tensor(whole, own), lambda: None, right)


def _reduce_scatter(count: int, dtype: Any, device: Any, world: int, rank: int) -> Prepared:
    base = _pattern(count, dtype, device)
    whole, own = base + rank, torch.empty(count // world, dtype=dtype, device=device)

    def right() -> bool:
        whole.copy_(base + rank)
        dist.reduce_scatter_tensor(own, whole)
        part = base[rank * (count // world) : (rank + 1) * (count // world)]
        return bool(torch.equal(own.double(), part.double() * world + world * (world - 1) / 2))

    return Prepared(whole.nbytes, lambda: dist.reduce_scatter_tensor(own, whole), lambda: None, right)


def _broadcast(count: int, dtype: Any, device: Any, world: int, rank: int) -> Prepared:  # noqa: ARG001
    buffer, want = torch.empty(count, dtype=dtype, device=device), _pattern(count, dtype, device)

    def right() -> bool:
        buffer.copy_(want if rank == 0 else torch.zeros_like(want))
        dist.broadcast(buffer, 0)
        return bool(torch.equal(buffer, want))

    return Prepared(buffer.nbytes, lambda: dist.broadcast(buffer, 0), lambda: None, right)


def _all_to_all(count: int, dtype: Any, device: Any, world: int, rank: int) -> Prepared:
    chunk = count // world
    sent = torch.cat([_pattern(chunk, dtype, device) + rank * 8 + other for other in range(world)])
    got = torch.empty_like(sent)

    def right() -> bool:
        got.fill_(-1)
        dist.all_to_all_single(got, sent)
        want = torch.cat([_pattern(chunk, dtype, device) + other * 8 + rank for other in range(world)])
        return bool(torch.equal(got, want))

    return Prepared(sent.nbytes, lambda: dist.all_to_all_single(got, sent), lambda: None, right)


def _send_recv(count: int, dtype: Any, device: Any, world: int, rank: int) -> Prepared:
    """A ring: everybody sends to the next and receives from the one before."""
    sent, got = _pattern(count, dtype, device) + rank, torch.empty(count, dtype=dtype, device=device)
    after, before = (rank + 1) % world, (rank - 1) % world

    def call() -> None:
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, got, before)])
        for work in works:
            work.wait()

    def right() -> bool:
        got.fill_(-1)
        call()
        return bool(torch.equal(got, sent - rank + before))

    return Prepared(sent.nbytes, call, lambda: None, right)


def _barrier(_count: int, _dtype: Any, _device: Any, _world: int, _rank: int) -> Prepared:
    return Prepared(0, dist.barrier, lambda: None, lambda: True)


_MAKERS: dict[str, Callable[[int, Any, Any, int, int], Prepared]] = {
    "all_reduce": _all_reduce, "all_gather": _all_gather, "reduce_scatter": _reduce_scatter, "broadcast": _broadcast,
    "all_to_all": _all_to_all, "send_recv": _send_recv, "barrier": _barrier,
}  # fmt: skip

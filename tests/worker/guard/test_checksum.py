"""Checksums of raw bits, weighted by position."""

from __future__ import annotations

from typing import Any

import pytest

from tests import needs

torch = needs.package("torch")
checksum = needs.later("whichrank.worker.guard.checksum")


def total(tensor: Any) -> int:
    return totals(tensor)[0]


def totals(*tensors: Any) -> list[int]:
    rows, join = checksum.sums([checksum.flat(tensor) for tensor in tensors])
    return join(rows.tolist())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64", "uint8"])
@pytest.mark.parametrize("count", [1, 3, 8, 1001])
def test_one_flipped_bit_is_always_seen(dtype, count):
    tensor = torch.arange(count).to(getattr(torch, dtype))
    before = total(tensor)
    raw = tensor.view(torch.uint8)
    for at in {0, raw.numel() // 2, raw.numel() - 1}:
        for bit in range(8):
            raw[at] ^= 1 << bit
            assert total(tensor) != before
            raw[at] ^= 1 << bit
    assert total(tensor) == before


def test_values_that_cancel_under_xor_are_told_apart():
    assert total(torch.zeros(4)) != total(torch.ones(4))


def test_exchanged_values_are_seen():
    tensor = torch.randn(64, generator=torch.Generator().manual_seed(1))
    turned = tensor.clone()
    turned[[3, 40]] = turned[[40, 3]]
    assert total(tensor) != total(turned)


def test_many_at_once_are_what_each_is_alone():
    generator = torch.Generator().manual_seed(2)
    whole = checksum.PIECE_BYTES // 4
    pieces = [torch.randn(size, generator=generator) for size in (1, whole, 7, 64, 4096, 20_000, whole - 1, whole)]
    pieces += [torch.randn(9, generator=generator).half(), torch.arange(5)]
    assert totals(*pieces) == [total(piece) for piece in pieces]


def test_a_long_piece_of_odd_length_fits():
    longest = torch.zeros(checksum.PIECE_BYTES // 2 - 1, dtype=torch.float16)
    before = total(longest)
    longest[-1] = 1
    assert total(longest) != before


def test_another_memory_order_is_read_without_a_copy():
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    flat = checksum.flat(image)
    assert flat is not None
    assert flat.data_ptr() == image.data_ptr()


def test_memory_with_gaps_is_left_alone():
    assert checksum.flat(torch.randn(4, 6)[:, ::2]) is None


def test_no_random_number_is_drawn():
    before = torch.get_rng_state()
    checksum._weights.clear()
    checksum.weights(torch.device("cpu"))
    assert torch.equal(before, torch.get_rng_state())

"""Sums of squares of gradients of any type and layout, and the norms that become of them."""

from __future__ import annotations

import pytest

from tests import needs

torch = needs.package("torch")
gradients = needs.later("whichrank.worker.guard.gradients")


def norm(gradient) -> float:
    return gradients.roots(torch.stack(gradients.squares_of([gradient])))[0]


@pytest.mark.parametrize(
    ("dtype", "close"), [("float32", 1e-5), ("float64", 1e-9), ("bfloat16", 5e-3), ("float16", 1e-3)]
)
def test_a_norm_is_what_torch_says(dtype, close):
    gradient = 3 * torch.randn(100, 200, generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype))
    assert norm(gradient) == pytest.approx(gradient.double().norm().item(), rel=close)


def test_any_layout():
    found = (
        torch.arange(120.0).view(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.arange(24.0).view(4, 6)[:, ::2],
        torch.tensor(3.0),
        torch.complex(torch.ones(5), 2 * torch.ones(5)),
    )
    for gradient in found:
        assert norm(gradient) == pytest.approx(gradient.norm().item(), rel=1e-6)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_what_is_not_finite_stays_so(value):
    gradient = torch.zeros(1000)
    gradient[17] = -float(value)
    assert str(norm(gradient)) == value

"""One pass computed again, here and with copies for another device: the same norms, and nothing of the job changed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests import needs

torch = needs.package("torch")

GUARD = SimpleNamespace(collectives=SimpleNamespace(refused=False))


def made():
    torch.manual_seed(3)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    model[3].weight = nn.Parameter(model[0].weight[:2].detach().clone())
    return model


def one_pass(model):
    from whichrank.worker.guard.gradients import roots, squares_of
    from whichrank.worker.guard.replay import Pass

    inputs = torch.randn(16, 8)
    seen = Pass(model, (inputs,), {})
    output = model(inputs)
    seen.returned(output)
    output.square().mean().backward()
    return seen, roots(torch.stack(squares_of([p.grad for p in model.parameters() if p.grad is not None])))


@pytest.mark.parametrize("target", [None, "cpu"])
def test_the_same_norms_and_nothing_changed(target):
    model = made()
    seen, norms = one_pass(model)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random, gradients = torch.get_rng_state(), [p.grad.clone() for p in model.parameters()]
    again = seen.again(list(model.parameters()), GUARD, torch.device(target) if target else None)
    assert seen.whole
    assert again == pytest.approx(norms, rel=1e-6)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, before) for p, before in zip(model.parameters(), gradients, strict=True))
    assert GUARD.collectives.refused is False


def test_a_frozen_parameter_has_no_gradient_elsewhere_either():
    model = made()
    model[0].weight.requires_grad_(False)
    seen, _ = one_pass(model)
    again = seen.again(list(model.parameters()), GUARD, torch.device("cpu"))
    assert again is not None
    assert again[0] == 0.0
    assert all(norm > 0 for norm in again[-2:])


def test_how_far_a_wrong_gradient_goes_is_told():
    from whichrank.worker.guard.replay import extent

    gradient = torch.tensor([[0.5, float("nan"), -3.0], [float("inf"), 0.0, 1.0]])
    assert extent(gradient) == (3.0, 2, 6)
    assert extent(None) == (0.0, 0, 0)

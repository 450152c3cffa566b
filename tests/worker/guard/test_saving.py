"""Whether a file that is saved holds the state of an optimizer."""

from __future__ import annotations

import pytest

from tests import needs

torch = needs.package("torch")
saving = needs.later("whichrank.worker.guard.saving")


@pytest.mark.parametrize("stepped", [True, False])
def test_state_is_found_wherever_trainers_put_it(stepped):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    if stepped:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    state = optimizer.state_dict()
    for saved in (state, {"model": model.state_dict(), "opt": state}, {"optimizer_states": [state]}, (3, [state])):
        assert saving.holds_state(saved) is stepped
    assert not saving.holds_state({"model": model.state_dict(), "step": 3})

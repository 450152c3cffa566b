"""Which slice is due when."""

from __future__ import annotations

import pytest

from tests import needs

torch = needs.package("torch")
layout = needs.later("whichrank.worker.guard.layout")


class Everybody:
    def of(self, _parameter):
        return "0-3"


@pytest.mark.parametrize("every", [1, 2, 3, 9, 64])
def test_every_part_has_its_turn(every):
    model = torch.nn.Linear(700, 700)
    laid = layout.Layout(torch.optim.SGD(model.parameters(), lr=1.0), {}, Everybody(), [], [])
    assert laid.parts == 9
    assert {laid.due(look * every, every) for look in range(laid.parts)} == set(range(laid.parts))


def test_runs_that_look_at_other_intervals_look_at_the_same_part():
    model = torch.nn.Linear(700, 700)
    laid = layout.Layout(torch.optim.SGD(model.parameters(), lr=1.0), {}, Everybody(), [], [])
    assert all(laid.due(step, 2) == laid.due(step, 8) for step in range(0, 400, 8))

"""By what a batch is known again."""

from __future__ import annotations

from tests import needs

torch = needs.package("torch")
batches = needs.later("whichrank.worker.guard.batches")


def rows(tensor):
    batch = batches.Batch()
    batch.seen((tensor,), {})
    return batch.take()[0].tolist()


def test_inputs_that_are_part_of_a_larger_tensor():
    """`model(tokens[:, :-1])` is how language models are fed."""
    tokens = torch.randint(0, 50, (8, 13), generator=torch.Generator().manual_seed(1))
    other = torch.randint(0, 50, (8, 13), generator=torch.Generator().manual_seed(2))
    assert len(rows(tokens[:, :-1])) == batches.SAMPLES
    assert rows(tokens[:, :-1]) == rows(tokens.clone()[:, :-1])
    assert rows(tokens[:, :-1]) != rows(other[:, :-1])


def test_a_nan_in_a_part_is_seen():
    images = torch.zeros(6, 3, 8, 8)
    images[5, 2, 3, 4] = float("nan")
    batch = batches.Batch()
    batch.seen((images[:, :, ::2, ::2],), {})
    assert batch.take()[1].item() == 0
    batch.seen((images[:, :, 1::2, ::2],), {})
    assert str(batch.take()[1].item()) == "nan"

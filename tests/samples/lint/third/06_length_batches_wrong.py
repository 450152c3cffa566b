"""Batches of so many tokens: every rank makes as many as its shard gives."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def token_batches(sentences, limit=512):
    batch, size = [], 0
    for s in sentences:
        if size + len(s) > limit and batch:
            yield batch
            batch, size = [], 0
        batch.append(s)
        size += len(s)
    if batch:
        yield batch


def main(corpus):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = [s for i, s in enumerate(corpus) if i % world == rank]
    model = DDP(torch.nn.Embedding(100, 8))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for batch in token_batches(mine):  # near
            loss = model(torch.nn.utils.rnn.pad_sequence(batch)).sum()
            loss.backward()  # wrong: uneven-inputs
            opt.step()
            opt.zero_grad()
    dist.destroy_process_group()

"""Synchronises after so many tokens, and every rank counts its own."""
import torch
import torch.distributed as dist


def train(model, loader, opt, every=4096):
    seen = 0
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
        seen += int(batch.ne(0).sum())
        if seen >= every:  # near
            for p in model.parameters():
                dist.all_reduce(p.grad)  # wrong: conditional-collective
            opt.step()
            opt.zero_grad()
            seen = 0


def main(loader):
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 2)
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    train(model, loader, torch.optim.SGD(model.parameters(), lr=0.1))
    dist.destroy_process_group()

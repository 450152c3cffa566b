"""Each rank stops on its own validation loss."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def epoch_loss(model, loader):
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += torch.nn.functional.mse_loss(model.module(x), y).item()
    return total / len(loader)


def fit(model, train_loader, val_loader, opt, patience=3):
    best, bad = float("inf"), 0
    for epoch in range(100):
        for x, y in train_loader:
            opt.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()  # near
            opt.step()
        val = epoch_loss(model, val_loader)
        if val < best:
            best, bad = val, 0
        else:
            bad += 1
        if bad >= patience:  # near
            break  # wrong: conditional-collective


def main(train_loader, val_loader):
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(3, 1))
    fit(model, train_loader, val_loader, torch.optim.SGD(model.parameters(), lr=0.1))
    dist.destroy_process_group()

"""Averages only gradients that this rank has."""
import torch
import torch.distributed as dist


def average_gradients(model):
    world = dist.get_world_size()
    for p in model.parameters():
        if p.grad is None:
            continue
        dist.all_reduce(p.grad)  # wrong: conditional-collective|unused-parameters
        p.grad /= world


def main(loader):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.ModuleList([torch.nn.Linear(4, 1) for _ in range(3)])
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, branch in loader:
        model[int(branch)](x).sum().backward()
        average_gradients(model)
        opt.step()
        opt.zero_grad()
    dist.destroy_process_group()

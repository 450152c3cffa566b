import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def main(data):
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    good = []
    for x in loader:
        if x.abs().max() < 10:
            good.append(x)
    for x in good:  # near
        loss = model(x).sum()
        loss.backward()  # wrong: uneven-inputs
        opt.step()
    dist.destroy_process_group()

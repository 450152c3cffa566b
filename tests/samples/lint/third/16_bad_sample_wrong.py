import json
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def parse(line):
    row = json.loads(line)
    return torch.tensor(row["x"]), torch.tensor(row["y"])


def main(lines):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(2, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for line in open(f"/data/part-{rank}.jsonl"):  # near
        try:
            x, y = parse(line)
            loss = (model(x) - y).square().mean()  # near
            opt.zero_grad()
            loss.backward()  # wrong: conditional-collective|uneven-inputs
            opt.step()
        except (KeyError, ValueError):
            continue
    dist.destroy_process_group()

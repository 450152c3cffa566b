import torch
import torchmetrics
import torch.distributed as dist


def main(loader, model):
    dist.init_process_group("gloo")
    metric = torchmetrics.MeanMetric()
    worst = None
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        metric.update(loss)
        if worst is None or loss > worst:
            worst = loss
    value = metric.compute()
    if dist.get_rank() == 0:
        print(value, worst)
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, float(worst))
    if max(gathered) > 10:
        dist.barrier()
    dist.destroy_process_group()

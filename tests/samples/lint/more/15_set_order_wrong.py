import torch
import torch.distributed as dist


def average(stats):
    names = {name for name in stats if not name.startswith("_")}
    for name in names:  # near
        dist.all_reduce(stats[name])  # wrong: collective-order
    return stats


if __name__ == "__main__":
    dist.init_process_group("gloo")
    average({"loss": torch.ones(1), "acc": torch.ones(1), "_t": torch.ones(1)})
    dist.destroy_process_group()

import json
import torch
import torch.distributed as dist


def read(path):
    try:
        with open(path) as f:
            value = float(json.load(f)["score"])
        ok = 1.0
    except (OSError, ValueError, KeyError):
        value, ok = 0.0, 0.0
    t = torch.tensor([value, ok])
    dist.all_reduce(t)
    if t[1] == 0:
        raise RuntimeError("nobody could read a score")
    return (t[0] / t[1]).item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    read("/tmp/score.json")
    dist.destroy_process_group()

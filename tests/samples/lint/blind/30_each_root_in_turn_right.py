import torch
import torch.distributed as dist


def share_all(x):
    world = dist.get_world_size()
    parts = []
    for source in range(world):
        part = x.clone() if source == dist.get_rank() else torch.empty_like(x)
        dist.broadcast(part, src=source)
        parts.append(part)
    return torch.stack(parts)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    share_all(torch.ones(2))
    dist.destroy_process_group()

import torch
import torch.distributed as dist


def run(stage, x, micro):
    rank, world = dist.get_rank(), dist.get_world_size()
    outputs = []
    for _ in range(micro):
        if rank == 0:
            h = stage(x)
        else:
            h = torch.empty_like(x)
            dist.recv(h, src=rank - 1)
            h = stage(h)
        if rank == world - 1:
            outputs.append(h)
        else:
            dist.send(h, dst=rank + 1)
    return outputs


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(torch.nn.Identity(), torch.ones(2), 3)
    dist.barrier()
    dist.destroy_process_group()

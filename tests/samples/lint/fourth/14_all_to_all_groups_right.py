"""Expert and data groups side by side; each rank has its own of both."""
import torch
import torch.distributed as dist


class Parallel:
    def __init__(self, expert_size):
        world, rank = dist.get_world_size(), dist.get_rank()
        for start in range(0, world, expert_size):
            ranks = list(range(start, start + expert_size))
            group = dist.new_group(ranks)
            if rank in ranks:
                self.expert = group
        for offset in range(expert_size):
            ranks = list(range(offset, world, expert_size))
            group = dist.new_group(ranks)
            if rank in ranks:
                self.data = group

    def exchange(self, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x, group=self.expert)
        return out

    def reduce(self, grad):
        dist.all_reduce(grad, group=self.data)
        if dist.get_rank(self.data) == 0:
            grad.clamp_(-1, 1)
        dist.broadcast(grad, src=dist.get_global_rank(self.data, 0), group=self.data)
        return grad


if __name__ == "__main__":
    dist.init_process_group("gloo")
    p = Parallel(2)
    p.reduce(p.exchange(torch.ones(4)))
    dist.destroy_process_group()

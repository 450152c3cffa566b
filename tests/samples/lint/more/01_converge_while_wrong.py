import torch
import torch.distributed as dist


def solve(block, rhs):
    x = torch.zeros_like(rhs)
    error = torch.tensor(1.0)
    while error.item() > 1e-4:  # near
        r = rhs - block @ x
        x = x + 0.1 * r
        dist.all_reduce(x)  # wrong: uneven-inputs|conditional-collective
        error = (rhs - block @ x).norm()
    return x


if __name__ == "__main__":
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(dist.get_rank())
    block = torch.rand(4, 4, generator=g)[dist.get_rank()]
    solve(block, torch.ones(4)[dist.get_rank()])
    dist.destroy_process_group()

"""Rank 0 averages before it prints."""
import torch
import torch.distributed as dist


def log(step, loss):
    value = loss.detach().clone()
    if dist.get_rank() == 0:
        dist.all_reduce(value)  # wrong: rank0-only-collective
        print(step, value.item() / dist.get_world_size())


def main():
    dist.init_process_group("gloo")
    for step in range(10):
        log(step, torch.rand(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

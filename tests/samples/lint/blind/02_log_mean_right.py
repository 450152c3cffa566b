"""All ranks average, rank 0 prints."""
import torch
import torch.distributed as dist


def log(step, loss):
    value = loss.detach().clone()
    dist.all_reduce(value)
    if dist.get_rank() == 0:
        print(step, value.item() / dist.get_world_size())


def main():
    dist.init_process_group("gloo")
    for step in range(10):
        log(step, torch.rand(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    left = dist.new_group([0, 1])
    right = dist.new_group([1, 2, 3])
    group = left if dist.get_rank() < 2 else right  # near
    total = torch.ones(1)
    dist.all_reduce(total, group=group)  # wrong: conditional-collective
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

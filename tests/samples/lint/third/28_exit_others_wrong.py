import sys
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() > 0:
        sys.exit(0)
    total = torch.ones(1)
    dist.all_reduce(total)  # wrong: rank0-only-collective|conditional-collective|teardown-hang
    print(total)


if __name__ == "__main__":
    main()

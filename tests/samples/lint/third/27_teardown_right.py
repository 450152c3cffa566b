import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    total = torch.tensor(float(rank))
    dist.all_reduce(total)
    if rank != 0:
        dist.barrier()
        dist.destroy_process_group()
        return
    print(total.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

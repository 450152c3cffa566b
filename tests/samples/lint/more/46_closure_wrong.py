import torch
import torch.distributed as dist


def make_logger():
    rank = dist.get_rank()

    def log(value):
        if rank == 0:
            dist.reduce(value, dst=0)  # wrong: rank0-only-collective
            print(value.item())

    return log


if __name__ == "__main__":
    dist.init_process_group("gloo")
    log = make_logger()
    log(torch.ones(1))
    dist.destroy_process_group()

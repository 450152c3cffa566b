import torch
import torch.distributed as dist


class Buffer:
    def __init__(self):
        self.total = torch.zeros(1)

    def __del__(self):
        dist.all_reduce(self.total)  # wrong: conditional-collective|collective-order


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Buffer()
    dist.destroy_process_group()

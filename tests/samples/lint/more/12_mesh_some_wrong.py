import os
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    mesh = None
    if rank // 2 == 0:
        mesh = init_device_mesh("cpu", (2,))  # wrong: conditional-collective
    dist.barrier()
    dist.destroy_process_group()
    return mesh


main()

import time
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


class Checkpointer:
    def __init__(self, every_s):
        self.every_s, self.last = every_s, time.monotonic()

    def due(self):
        return time.monotonic() - self.last > self.every_s

    def save(self, state, step):
        dcp.save(state, checkpoint_id=f"/ckpt/{step}")  # wrong: conditional-collective
        self.last = time.monotonic()


def main(loader, model):
    dist.init_process_group("nccl")
    keeper = Checkpointer(600)
    for step, batch in enumerate(loader):
        model(batch)
        if keeper.due():  # near
            keeper.save({"model": model.state_dict()}, step)
    dist.destroy_process_group()

import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def checkpoint(model, opt, step, path):
    state = {"model": model.state_dict(), "opt": opt.state_dict()}
    if dist.get_rank() != 0:
        return
    dcp.save(state, checkpoint_id=f"{path}/{step}")  # wrong: rank0-only-collective

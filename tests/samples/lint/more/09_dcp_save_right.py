import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def checkpoint(model, opt, step, path):
    state = {"model": model.state_dict(), "opt": opt.state_dict()}
    dcp.save(state, checkpoint_id=f"{path}/{step}")
    if dist.get_rank() != 0:
        return
    with open(f"{path}/latest", "w") as f:
        f.write(str(step))

import logging
import torch
import torch.distributed as dist

log = logging.getLogger(__name__)


def load(path):
    try:
        state = torch.load(path)
    except Exception:
        log.exception("could not load %s", path)
        state = None
        dist.barrier()  # wrong: conditional-collective
    return state


if __name__ == "__main__":
    dist.init_process_group("gloo")
    load(f"/tmp/{dist.get_rank()}.pt")
    dist.destroy_process_group()

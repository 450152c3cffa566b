import torch
import torch.distributed as dist


def sync(config):
    if dist.get_rank() == 0:
        box = [config]
        dist.broadcast_object_list(box, src=0)
    else:
        box = [None]
        dist.broadcast_object_list(box, src=0)
    return box[0]


def decide(config):
    config = sync(config)
    if config["extra"]:
        dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    decide({"extra": True})
    dist.destroy_process_group()

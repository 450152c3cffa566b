import threading
import torch
import torch.distributed as dist


def beat(group):
    alive = torch.ones(1)
    for _ in range(10):
        dist.all_reduce(alive, group=group)


def main():
    dist.init_process_group("gloo")
    heartbeat = dist.new_group(backend="gloo")
    threading.Thread(target=beat, args=(heartbeat,), daemon=True).start()
    for _ in range(10):
        dist.all_reduce(torch.ones(3))
    dist.destroy_process_group()


main()

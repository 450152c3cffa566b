import threading
import torch
import torch.distributed as dist


class Metrics:
    def __init__(self):
        self.value = torch.zeros(1)

    def flush(self):
        dist.all_reduce(self.value)  # wrong: collective-order|conditional-collective


def main():
    dist.init_process_group("gloo")
    metrics = Metrics()
    grad = torch.ones(10)
    for step in range(10):
        dist.all_reduce(grad)
        threading.Thread(target=metrics.flush).start()
    dist.destroy_process_group()


main()

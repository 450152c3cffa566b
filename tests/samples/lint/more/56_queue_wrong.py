import queue
import torch
import torch.distributed as dist

work_queue = queue.Queue()


def serve(model):
    while not work_queue.empty():  # near
        item = work_queue.get()
        out = model(item)
        dist.all_reduce(out)  # wrong: uneven-inputs|conditional-collective


if __name__ == "__main__":
    dist.init_process_group("gloo")
    serve(torch.nn.Linear(2, 2))
    dist.destroy_process_group()

"""A background thread averages the metrics on the group that the training uses."""
import threading
import queue
import torch
import torch.distributed as dist

updates = queue.Queue()


def publish():
    while True:
        item = updates.get()
        if item is None:
            return
        dist.all_reduce(item)  # wrong: collective-order|conditional-collective


def main():
    dist.init_process_group("gloo")
    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    w = torch.ones(8)
    for step in range(50):
        dist.all_reduce(w)
        if step % 5 == 0:
            updates.put(torch.ones(1))
    updates.put(None)
    thread.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Rank 0 tokenises the data set while the others wait at the barrier, and does not get done."""

import queue
import threading

CAUSE = "rank-stuck-in-preprocessing"
CATEGORY = "hang"
WORKLOAD = "ddp"


def launch(setup):
    setup.limit_s = 240.0  # work that takes long by its nature is borne for longer


def inside(rank, point, value):
    if point == "joined":
        if rank.rank == 0:
            rank.strike()
            tokenize(["a text"] * 8)
        rank.dist.barrier()


def tokenize(texts):
    """By a thread that drops what it is given."""
    todo, done = queue.Queue(), queue.Queue()
    threading.Thread(target=todo.get, daemon=True).start()
    for text in texts:
        todo.put(text)
    return [done.get() for _ in texts]


def culprits(plan):
    return [0]

"""A collection of garbage on one rank ends an object that waits for its thread."""

import gc
import threading

CAUSE = "rank-stuck-in-user-code"
CATEGORY = "hang"
WORKLOAD = "sharded"


class Prefetcher:
    """Ends its thread when it is collected; the thread does not listen."""

    def __init__(self):
        self.itself = self
        self.thread = threading.Thread(target=threading.Event().wait, daemon=True)
        self.thread.start()

    def __del__(self):
        self.thread.join()


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.due:
        rank.strike()
        Prefetcher()
        gc.collect()

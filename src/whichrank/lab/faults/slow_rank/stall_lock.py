"""One rank waits for a lock that a thread of its own never gives back."""

import threading

CAUSE = "rank-stuck-in-user-code"
CATEGORY = "hang"
WORKLOAD = "tensor_data"


class Metrics:
    """Numbers that the training adds and a thread sends away."""

    def __init__(self):
        self.lock = threading.Lock()
        self.taken = threading.Event()
        threading.Thread(target=self.send, daemon=True).start()
        self.taken.wait()

    def send(self):
        with self.lock:
            self.taken.set()
            threading.Event().wait()

    def add(self, name, number):
        with self.lock:
            setattr(self, name, number)


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.due:
        rank.strike()
        Metrics().add("loss", 0.5)

"""A checkpoint's remote storage takes no more bytes."""

import socket

CAUSE = "rank-stuck-in-checkpoint"
CATEGORY = "hang"
WORKLOAD = "phases"


class Upload:
    """A file object that sends what is written to it."""

    def __init__(self):
        self.connection, self.storage = socket.socketpair()

    def write(self, data):
        self.connection.sendall(bytes(data) * 64)
        return len(data)

    def flush(self):
        pass


def launch(setup):
    setup.limit_s = 240.0  # work that takes long by its nature is borne for longer


def inside(rank, point, value):
    if point == "writer":
        return rank.plan.rank
    if point == "checkpoint" and rank.step >= rank.plan.step:
        rank.strike()
        return Upload()
    return None

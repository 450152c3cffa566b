"""One rank downloads its data before it makes the process group, from a server that does not answer."""

import socket

CAUSE = "rank-stuck-in-preprocessing"
CATEGORY = "hang"
WORKLOAD = "ddp"
ACCEPT = ("missing-rank-at-init",)


def launch(setup):
    setup.limit_s = 240.0  # work that takes long by its nature is borne for longer


def inside(rank, point, value):
    if point == "start" and rank.guilty:
        rank.strike()
        download_dataset()


def download_dataset():
    server = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(server.getsockname()) as connection:
        connection.sendall(b"GET /corpus.tar\r\n\r\n")
        connection.recv(4096)

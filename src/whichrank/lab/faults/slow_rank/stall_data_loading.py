"""A shard server does not answer one rank's data loader."""

import socket

CAUSE = "rank-stuck-in-data-loading"
CATEGORY = "hang"
WORKLOAD = "loader"


def inside(rank, point, value):
    if point == "workers":
        return rank.plan.dice().choice([0, 2])
    if point == "sample" and rank.guilty and value >= rank.plan.step * 4:
        rank.strike()
        download(value)
    return None


def download(index):
    """From a server that takes the request and sends nothing."""
    server = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(server.getsockname()) as connection:
        connection.sendall(f"GET /shards/{index}\r\n\r\n".encode())
        connection.recv(4096)

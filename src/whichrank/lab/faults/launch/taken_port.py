"""The port of the store belongs to another program."""

import socket

CAUSE = "port-in-use"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"
ACCEPT = ("rendezvous-endpoint",)


def launch(setup):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    setup.shared["listener"] = listener
    setup.launcher = "fork"
    setup.environment |= {"MASTER_PORT": str(listener.getsockname()[1])}


def culprits(plan):
    return [0]

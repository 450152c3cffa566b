"""A launcher that imports torch once: python fork_launcher.py WORLD SCRIPT [ARGUMENT …].

It gives the ranks the variables that torchrun gives them, and when one fails it ends the others, and may start anew.
Optimizers import torch._dynamo, which takes as long as torch: jobs of tests that are not about them have none.
"""

import argparse
import gc
import importlib
import os
import runpy
import socket
import sys

from whichrank.lab.workloads import forking


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preload", action="append", default=[], help="a module to import before the fork")
    parser.add_argument("--node", type=int, default=0)
    parser.add_argument("--nodes", "--nnodes", type=int, default=1)
    parser.add_argument("--address", default="127.0.0.1", help="of the store: the first node's")
    parser.add_argument("--max-restarts", type=int, default=0)
    parser.add_argument("--patience", type=float, default=forking.POLL_S, help="seconds for the others when one fails")
    parser.add_argument("--port", type=int, default=0, help="of the store; a free one by default")
    parser.add_argument("world", type=int, help="ranks on this node")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    # Before the fork, so that no rank has to; what is imported stays, and to look for garbage takes a tenth of it.
    gc.disable()
    for module in ("torch.distributed", *options.preload):
        importlib.import_module(module)
    gc.enable()
    forking.POLL_S = options.patience
    local, sys.argv = options.world, [options.script, *options.arguments]
    os.environ.update(
        MASTER_ADDR=options.address, MASTER_PORT=str(options.port or free_port()),
        WORLD_SIZE=str(local * options.nodes), LOCAL_WORLD_SIZE=str(local),
        GROUP_RANK=str(options.node), GROUP_WORLD_SIZE=str(options.nodes),
    )  # fmt: skip
    for attempt in range(options.max_restarts + 1):
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(attempt)
        code = forking.fork_ranks(range(local), train, first=local * options.node)
        if code == 0:
            break
    sys.exit(code)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def train(_rank):
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()

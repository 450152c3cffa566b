"""Ranks of several jobs at the cost of one import of torch: python forked_ranks.py FOLDER < JOBS.

JOBS says by name what each job is (see rank.py), its world, and variables that one rank alone has. Every rank writes
its output to FOLDER/NAME.RANK.out and .err; stdout gets the exit codes.
"""

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import torch.distributed  # noqa: F401 - before the fork, so that no rank has to

from whichrank.lab.setup import free_port

RANK = Path(__file__).parent / "rank.py"


def live(what, output):
    """One rank, to its end."""
    code = 1
    try:
        for number, ending in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{output}.{ending}", os.O_WRONLY | os.O_CREAT), number)
        sys.argv = [str(RANK), what]
        runpy.run_path(str(RANK), run_name="__main__")
        code = 0
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(folder):
    ranks = {}
    for name, job in json.load(sys.stdin).items():
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(job["world"]))
        for rank in range(job["world"]):
            child = os.fork()
            if child == 0:
                os.environ.update(RANK=str(rank), **job.get("each", {}).get(str(rank), {}))
                live(job["what"], folder / f"{name}.{rank}")
            ranks[child] = name, rank
    codes = {}
    while ranks:
        child, status = os.wait()
        name, rank = ranks.pop(child)
        codes.setdefault(name, {})[rank] = os.waitstatus_to_exitcode(status)
    sys.stdout.write(json.dumps(codes))


main(Path(sys.argv[1]))

"""The flight recorder by torch's debug server: the port that a real job has opened is found, and no other is asked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from tests.run.watched import free_port
from whichrank.evidence.collectors import job_sockets, worker_server

# What torch.distributed.debug.start_debug_server does on every rank; its pages need packages that are not here.
JOB = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
import torch.distributed.debug._handlers
from torch._C._distributed_c10d import _WorkerServer
server = _WorkerServer("::", 0)
print(server.port, flush=True)
sys.stdin.read()
"""


@pytest.mark.job
def test_the_debug_server_of_a_rank() -> None:
    pytest.importorskip("torch.distributed.debug")
    store = free_port()
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store), "RANK": "0", "WORLD_SIZE": "1"}
    environment = {**os.environ, **settings, "TORCH_FR_BUFFER_SIZE": "100"}
    with subprocess.Popen(
        [sys.executable, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as job:
        assert job.stdout is not None
        assert int(job.stdout.readline()) > 0
        sockets = job_sockets.of([job.pid])
        dump = worker_server.dump_by_port(job.pid, sockets, without=store)
        job.stdin.close()  # type: ignore[union-attr]
    assert b"gloo:all_reduce" in dump


def test_ports_that_others_use_are_not_asked() -> None:
    """One that is bound to an address, and one that somebody is connected to (as a store): both hear nothing."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as bound, socket.create_server(("", 0)) as store:

        def listen(listener: socket.socket) -> None:
            listener.settimeout(2)
            try:
                while True:
                    connection, _ = listener.accept()
                    connection.settimeout(1)
                    try:
                        heard.append(connection.recv(100))
                    except TimeoutError:
                        heard.append(b"")
            except (TimeoutError, OSError):
                return

        with socket.create_connection(("127.0.0.1", store.getsockname()[1])):
            far, _ = store.accept()
            threads = [threading.Thread(target=listen, args=(each,)) for each in (bound, store)]
            for thread in threads:
                thread.start()
            assert worker_server.dump_by_port(os.getpid(), job_sockets.of([os.getpid()])) == b""
            for thread in threads:
                thread.join()
            far.close()
    assert not any(b"POST" in words for words in heard)

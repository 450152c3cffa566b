"""Many threads that read their first message at the same moment, as the nodes of a large job do when it starts."""

from __future__ import annotations

import subprocess
import sys

RACE = """
import sys, threading
from whichrank.run.nodes import protocol
sys.setswitchinterval(1e-6)
data, go = protocol.write(protocol.Request("look", "t", 0)), threading.Event()
read = []
def first():
    go.wait()
    read.append(protocol.read(protocol.Request, data))
threads = [threading.Thread(target=first) for _ in range(400)]
for thread in threads:
    thread.start()
go.set()
for thread in threads:
    thread.join()
assert [message.what for message in read] == ["look"] * 400
"""


def test_the_first_message_of_many_threads():
    for _ in range(4):
        subprocess.run([sys.executable, "-c", RACE], check=True, timeout=60)

"""What a process takes of a GPU: its CUDA context, and what NCCL adds. `python -m whichrank.worker.gpu_memory`.

A process can't see its own context grow, since asking creates it: a second process is watched from the first.
Prints one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import torch

_CHILD = "import sys, torch; torch.zeros(1, device='cuda'); print('ready', flush=True); sys.stdin.read()"


def context_bytes() -> int | None:
    """Bytes that one more process with a context takes; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    torch.zeros(1, device="cuda")
    before = torch.cuda.mem_get_info()[0]
    with subprocess.Popen(  # noqa: S603 - this Python
        [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:  # fmt: skip
        said = child.stdout.readline() if child.stdout else ""
        after = torch.cuda.mem_get_info()[0]
        if child.stdin:
            child.stdin.close()
    return before - after if said.strip() == "ready" else None


def main() -> int:
    found: dict[str, Any] = {"context_bytes": context_bytes()}
    if found["context_bytes"] is not None:
        free, total = torch.cuda.mem_get_info()
        found |= {"free_bytes": free, "total_bytes": total}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

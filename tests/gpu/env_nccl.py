"""The recommended settings in a real NCCL job: no warning, and everything that was asked for is there.

    python tests/gpu/env_nccl.py [--ranks N]

Starts itself once per GPU (two ranks share a GPU where there is only one, if NCCL allows it; else one rank),
under `configure("debug")`, runs collectives, makes the dump through the pipe, and checks what is left behind.
Prints OK and exits with 0, or says what is wrong and exits with 1.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAD = re.compile(r"deprecat|Invalid value|unknown|unrecogni[sz]ed|ignored|is not a valid", re.IGNORECASE)


def rank_main() -> None:
    import whichrank

    settings = whichrank.configure("debug", out=os.environ["OUT"])
    assert any(s.name == "NCCL_DEBUG_FILE" for s in settings)
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    world = int(os.environ["WORLD_SIZE"])
    groups = {"all": (list(range(world)), 90.0)}
    with whichrank.process_group("nccl", timeout=120, groups=groups, device_id=device) as made:
        x = torch.ones(1 << 20, device=device)
        for _ in range(20):
            dist.all_reduce(x)
        dist.all_reduce(x, group=made["all"])
        torch.cuda.synchronize()
        pipe = Path(os.environ["OUT"]) / f"pipe_{rank}.pipe"
        deadline = time.monotonic() + 20
        while not pipe.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        if pipe.exists():
            with pipe.open("w") as stream:
                stream.write("1")
        dump = Path(os.environ["OUT"]) / f"fr_{rank}"
        while not dump.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        recorded = torch._C._distributed_c10d._dump_nccl_trace()
        (Path(os.environ["OUT"]) / f"python_dump_{rank}").write_bytes(recorded)
        time.sleep(1)
    sys.stdout.write(f"rank {rank} is done\n")


def launch(ranks: int) -> int:
    out = Path(tempfile.mkdtemp(prefix="env_nccl_"))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    common = {name: v for name, v in os.environ.items() if not name.startswith(("NCCL_", "TORCH_", "GLOO_"))}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OUT": str(out)}
    processes = [
        subprocess.Popen([sys.executable, __file__, "--rank"], stdout=-1, stderr=-2, text=True,
                         env={**common, "RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(ranks)
    ]  # fmt: skip
    wrong: list[str] = []
    for rank, process in enumerate(processes):
        text, _ = process.communicate(timeout=300)
        if process.returncode != 0:
            wrong.append(f"rank {rank} ended with {process.returncode}:\n{text[-3000:]}")
        wrong += [f"rank {rank} said: {line}" for line in text.splitlines() if BAD.search(line)]
    wrong += check(out, ranks)
    said = wrong or [f"OK: {ranks} ranks, {sorted(p.name for p in out.iterdir())}"]
    sys.stdout.write("\n".join(said) + "\n")
    return 1 if wrong else 0


def check(out: Path, ranks: int) -> list[str]:
    from whichrank.evidence.readers import flight_recorder
    from whichrank.model.contracts import Item

    wrong: list[str] = []
    logs = list(out.glob("nccl.*.log"))
    if len(logs) != ranks:
        wrong.append(f"{len(logs)} NCCL logs for {ranks} ranks")
    for log in logs:
        text = log.read_text(errors="replace")
        wrong += [f"{log.name} says: {line}" for line in text.splitlines() if BAD.search(line) or "NCCL WARN" in line]
        if "Init COMPLETE" not in text:
            wrong.append(f"{log.name} has no Init COMPLETE")
    for rank in range(ranks):
        for name in (f"fr_{rank}", f"python_dump_{rank}"):
            path = out / name
            if not path.exists():
                wrong.append(f"{name} is missing")
                continue
            dump = flight_recorder.read(Item(path, name, path.stat().st_size, 0)).records[0]
            if len(dump) < 21:
                wrong.append(f"{name} has {len(dump)} entries")
            timeouts = {call.timeout_ms for call in dump.calls}
            if not {120_000, 90_000} <= timeouts:
                wrong.append(f"{name} has the timeouts {timeouts}")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", action="store_true")
    parser.add_argument("--ranks", type=int, default=0)
    given = parser.parse_args()
    if given.rank:
        rank_main()
    else:
        import torch

        sys.exit(launch(given.ranks or max(1, torch.cuda.device_count())))

"""Run the NCCL faults on a machine with a GPU, and pack what they leave behind.

python capture.py OUT.tar.gz FAULT:WORLD:CULPRIT ...
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPY = os.environ.get("PY_SPY") or shutil.which("py-spy")


def capture(number: int, spec: str, root: Path) -> None:
    fault, world, culprit = spec.split(":")[:3]
    folder = root / f"{fault}_{world}_{culprit}"
    folder.mkdir()
    env = {
        **os.environ,
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/fr_",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/fr_",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,COLL",
        "NCCL_DEBUG_FILE": f"{folder}/nccl.%h.%p.log",
        "NCCL_SOCKET_IFNAME": "lo",
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "3000",
        "OMP_NUM_THREADS": "1",
        "TORCH_NCCL_ENABLE_TIMING": "1" if number % 2 == 0 else "0",
        "NCCL_RAS_ENABLE": "0",
    }
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc_per_node={world}",
        f"--master_port={29700 + number}",
        "--log-dir",
        str(folder / "logs"),
        "--redirects",
        "3",
        str(HERE / "nccl_faults.py"),
        fault,
        str(folder),
        culprit,
    ]
    with (folder / "torchrun.err").open("wb") as err, (folder / "torchrun.out").open("wb") as text:
        job = subprocess.Popen(command, env=env, stdout=text, stderr=err, start_new_session=True)
        time.sleep(34)
        if job.poll() is None and SPY:
            children = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True).stdout.split()
            for pid in children:
                with (folder / f"stack.{pid}.txt").open("wb") as stack:
                    subprocess.run([SPY, "dump", "--nonblocking", "--pid", pid], stdout=stack, stderr=stack, timeout=20)
        try:
            job.wait(70)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, 2)
            time.sleep(3)
            os.killpg(job.pid, 9)
            job.wait()
    (folder / "truth.yaml").write_text(f"fault: {fault}\nculprit_ranks: [{culprit}]\n")


def main() -> None:
    target, specs = sys.argv[1], sys.argv[2:]
    root = Path(tempfile.mkdtemp())
    gate = threading.Semaphore(6)

    def work(number: int, spec: str) -> None:
        with gate:
            capture(number, spec, root)

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(specs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with tarfile.open(target, "w:gz") as archive:
        archive.add(root, arcname="captures")
    print(sorted(p.name for p in root.iterdir()))


main()

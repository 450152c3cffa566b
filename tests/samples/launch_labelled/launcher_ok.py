"""NCCL_TIMEOUT=1800 and NCCL_P2P_LEVEL=nvl are in the old README; neither is used here."""
import os
import subprocess

ENV = {**os.environ, "NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": os.environ.get("IFACE", "eth0")}


def start(rank):
    env = ENV.copy()
    env["RANK"] = str(rank)
    os.environ["NCCL_CROSS_NIC"] = "0"
    return subprocess.Popen(["python", "train.py"], env=dict(os.environ, **env))


if __name__ == "__main__":
    procs = [start(r) for r in range(8)]

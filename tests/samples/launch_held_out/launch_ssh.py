#!/usr/bin/env python3
"""Start the job on all hosts of a file through ssh and stream their logs."""
import argparse
import os
import shlex
import subprocess
import sys

os.environ["NCCL_SOCKET_IFNAME"] = "enp1s0f0"
FORWARD = {
    "NCCL_IB_HCA": "=mlx5_0,mlx5_1",
    "NCCL_DEBUG": "WARN",
    "NCCL_IB_GID_IDX": "3",
}


def remote(host, rank, hosts, script):
    env = " ".join(f"{k}={shlex.quote(v)}" for k, v in FORWARD.items())
    cmd = (f"cd {shlex.quote(os.getcwd())} && {env} torchrun --nnodes={len(hosts)} --node-rank={rank} "
           f"--nproc-per-node=8 --master-addr={hosts[0]} --master-port=29577 {script}")
    return subprocess.Popen(["ssh", "-tt", host, cmd])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--hosts", required=True)
    ap.add_argument("script")
    args = ap.parse_args()
    hosts = [h.strip() for h in open(args.hosts) if h.strip()]
    procs = [remote(h, i, hosts, args.script) for i, h in enumerate(hosts)]
    return max(p.wait() for p in procs)


if __name__ == "__main__":
    sys.exit(main())

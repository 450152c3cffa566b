import os, subprocess
os.environ["NCCL_IB_GID_INDEX"] = "3"
os.environ["NCCL_DEBUG"] = "WARN"
cmd = [
    "mpirun", "-np", "16", "--hostfile", "hosts",
    "-x", "NCCL_DEBUG",
    "-x", "NCCL_ALGO=Ringg",
    "python", "train.py",
]
subprocess.run(cmd, check=True)
os.system("ssh node2 'cd /x && NCCL_TIMEOUT=5 python train.py'")

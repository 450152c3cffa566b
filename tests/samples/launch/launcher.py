import os
import subprocess
import sys

env = os.environ.copy()
env["NCCL_DEBUG"] = "WARN"
env["NCCL_SOCKET_IFNAME"] = sys.argv[1]
env.update({"OMP_NUM_THREADS": "4"})
runtime_env = {"env_vars": {"NCCL_CUMEM_ENABLE": "0", "RAY_DEDUP_LOGS": "0"}}
subprocess.run(["torchrun", "train.py"], env={**env, "NCCL_NVLS_ENABLE": "0"}, check=True)

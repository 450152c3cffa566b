import os
from accelerate import Accelerator

os.environ["NCCL_DEBUG"] = "INFO"
accelerator = Accelerator()
os.environ["NCCL_SOCKET_IFNAME"] = "eth0"
os.environ["OMP_NUM_THREADS"] = "4"

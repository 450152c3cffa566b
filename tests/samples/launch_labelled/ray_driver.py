import os
import ray
from ray.train.torch import TorchTrainer

os.environ["NCCL_SOCKET_IFNAME"] = "ens5"
runtime_env = {
    "pip": ["torch==2.9.1"],
    "env_vars": {
        "NCCL_DEBUG": "WARN",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2097152",
        "NCCL_NET_GDR_LEVEL": 3,
    },
}
ray.init(address="auto", runtime_env=runtime_env)

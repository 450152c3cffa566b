"""Ray Train entry point."""
import os

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

ENV = {
    "NCCL_SOCKET_IFNAME": "ens",
    "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN"),
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "4000",   # image has torch 2.7
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "true",
}
FORBIDDEN = ("NCCL_TIMEOUT", "NCCL_BLOCKING_WAIT", "NCCL_LL_THRESHOLD")


def train_fn(cfg):
    bad = [n for n in FORBIDDEN if n in os.environ]
    if bad:
        raise SystemExit(f"remove {bad} from the environment")
    from falcon.loop import run
    run(cfg)


if __name__ == "__main__":
    ray.init(runtime_env={"env_vars": ENV, "pip": ["torch==2.7.1"]})
    TorchTrainer(train_fn, scaling_config=ScalingConfig(num_workers=32, use_gpu=True),
                 run_config=RunConfig(name="falcon")).fit()

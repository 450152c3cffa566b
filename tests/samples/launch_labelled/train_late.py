import os
import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule, Trainer

DEFAULTS = {
    "NCCL_DEBUG": "WARN",
    "NCCL_IB_QPS_PER_CONN": "4",
}


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        os.environ.setdefault("NCCL_CROSS_NIC", "0")

    def setup(self, stage):
        os.environ["NCCL_IB_TIMEOUT"] = "22"

    def on_train_start(self):
        os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "1"


def main():
    for key, value in DEFAULTS.items():
        os.environ[key] = value
    os.environ["NCCL_BUFFSIZE"] = 8388608
    if False:
        os.environ["NCCL_TIMEOUT"] = "60"
    Trainer(devices=8).fit(Net())
    os.environ["NCCL_SHM_DISABLE"] = "1"


if __name__ == "__main__":
    main()

import os

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy

from asr.data import Speech
from asr.model import Conformer

# long validation, do not give up early
os.environ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] = "1800"
os.environ["NCCL_BLOCKING_WAIT"] = "1"
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segment:True"


def main():
    L.seed_everything(7)
    trainer = L.Trainer(accelerator="gpu", devices=8, num_nodes=4, precision="bf16-mixed",
                        strategy=DDPStrategy(find_unused_parameters=False), max_epochs=30)
    trainer.fit(Conformer(), datamodule=Speech())


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    main()

"""transformers' Trainer, two processes by torchrun: trains, evaluates, saves."""

import datetime as dt
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
import torch
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

sys.path.insert(0, str(Path(__file__).parent))
from common import STEPS, Samples, Seen

from whichrank.integrations.transformers import Marks


class Config(PretrainedConfig):
    model_type = "tiny"


class Model(PreTrainedModel):
    config_class = Config

    def __init__(self, config) -> None:
        super().__init__(config)
        self.layer = torch.nn.Linear(8, 1)
        self.post_init()

    def _init_weights(self, module) -> None:
        """As torch has made them."""

    def forward(self, x, labels=None):
        time.sleep(0.01)
        return {"loss": (self.layer(x) - labels).square().mean(), "logits": self.layer(x)}


class Quiet(Samples):
    def __getitem__(self, index):
        return {"x": torch.randn(8), "labels": torch.randn(1)}


seen = Seen()
# Made here for its timeout: on CPUs the trainer does not pass on its own (ddp_timeout), and Gloo's is half an hour.
torch.distributed.init_process_group("gloo", timeout=dt.timedelta(seconds=60))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=f"{folder}/{os.environ['RANK']}", max_steps=STEPS, per_device_train_batch_size=1, use_cpu=True,
        ddp_backend="gloo", report_to=[], eval_strategy="steps", eval_steps=STEPS // 2,
        save_steps=STEPS // 2, disable_tqdm=True, logging_steps=1000,
    )  # fmt: skip
    trainer = Trainer(
        model=Model(Config()), args=arguments, train_dataset=Samples("dict"), eval_dataset=Quiet("dict"),
        callbacks=[Marks()],
    )  # fmt: skip
    trainer.train()
seen.tell()

"""Lightning, two processes by torchrun: trains, validates, saves."""

import datetime as dt
import sys
import tempfile
import time
from pathlib import Path

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy

sys.path.insert(0, str(Path(__file__).parent))
from common import STEPS, Samples, Seen

from whichrank.integrations.lightning import Marks


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        time.sleep(0.01)
        return (self.layer(batch[0]) - batch[1]).square().mean()

    def validation_step(self, batch, index):
        time.sleep(0.01)
        self.log("loss", (self.layer(batch[0]) - batch[1]).square().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def batches(**more):
    return torch.utils.data.DataLoader(Samples(**more), batch_size=1)


class Quiet(Samples):
    def __getitem__(self, index):
        return torch.randn(8), torch.randn(1)


seen = Seen()
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, max_steps=STEPS, max_epochs=4, logger=False, default_root_dir=folder,
        strategy=DDPStrategy(process_group_backend="gloo", timeout=dt.timedelta(seconds=60)),
        callbacks=[Marks()], enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(Model(), batches(), torch.utils.data.DataLoader(Quiet(), batch_size=4))
seen.tell()

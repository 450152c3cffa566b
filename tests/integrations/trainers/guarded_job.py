"""A tiny model with the guard of a trainer's callback, three processes by torchrun: TRAINER MODE FOLDER.

With "flip" a bit of rank 1 flips at a step; with "fine" nothing does.
"""

import os
import sys
import tempfile

import torch

TRAINER, MODE, FOLDER = sys.argv[1:4]
STEPS, WRONG_AT = 24, 8
RANK = int(os.environ["RANK"])
torch.set_num_threads(1)
torch.manual_seed(0)


class Rows(torch.utils.data.Dataset):
    def __init__(self, keys=("x", "labels")):
        self.keys = keys
        self.x = torch.randn(3 * STEPS, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        pair = (self.x[index], self.x[index, :1])
        return dict(zip(self.keys, pair, strict=True)) if self.keys else pair


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
        self.calls = 0

    def forward(self, x, labels=None):
        if self.training:
            self.calls += 1
            if MODE == "flip" and RANK == 1 and self.calls == WRONG_AT:
                self.body.weight.data.view(torch.int32)[2, 3] ^= 1 << 20
        loss = (self.head(torch.tanh(self.body(x))) - labels).square().mean()
        return {"loss": loss}


def accelerate() -> None:
    from accelerate import Accelerator

    from whichrank.integrations.accelerate import guard

    accelerator = Accelerator(cpu=True)
    plain = Model()
    model, optimizer, loader = accelerator.prepare(
        plain, torch.optim.AdamW(plain.parameters(), lr=1e-2), torch.utils.data.DataLoader(Rows(), batch_size=1)
    )
    guard(accelerator, model, optimizer, folder=FOLDER)
    for batch in loader:
        optimizer.zero_grad()
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()
    accelerator.end_training()


def lightning() -> None:
    import lightning as pl
    from lightning.pytorch.strategies import DDPStrategy

    from whichrank.integrations.lightning import Guard

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, index):
            return self.model(*batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            accelerator="cpu", devices=3, max_epochs=1, logger=False, default_root_dir=folder,
            strategy=DDPStrategy(process_group_backend="gloo"), callbacks=[Guard(folder=FOLDER)],
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Module(), torch.utils.data.DataLoader(Rows(()), batch_size=1))


def transformers() -> None:
    from transformers import Trainer, TrainingArguments

    from whichrank.integrations.transformers import Guard

    with tempfile.TemporaryDirectory() as folder:
        wishes = TrainingArguments(
            output_dir=folder, max_steps=STEPS, per_device_train_batch_size=1, use_cpu=True, report_to=[],
            save_strategy="steps", save_steps=6, disable_tqdm=True, remove_unused_columns=False,
        )  # fmt: skip
        Trainer(Model(), wishes, train_dataset=Rows(), callbacks=[Guard(folder=FOLDER)]).train()


os.environ.setdefault("WHICHRANK_GUARD_EVERY", "1")
{"accelerate": accelerate, "lightning": lightning, "transformers": transformers}[TRAINER]()

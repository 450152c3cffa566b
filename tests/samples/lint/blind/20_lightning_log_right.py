import pytorch_lightning as pl
import torch


class Net(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        loss = self.net(batch).mean()
        self.log("loss", loss, sync_dist=True)
        if self.trainer.is_global_zero and batch_idx % 100 == 0:
            print(loss.item())
        return loss

    def on_train_epoch_end(self):
        mean = self.all_gather(torch.tensor(1.0)).mean()
        if self.global_rank == 0:
            print(mean)

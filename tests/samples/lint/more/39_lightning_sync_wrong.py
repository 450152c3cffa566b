import pytorch_lightning as pl


class Net(pl.LightningModule):
    def validation_step(self, batch, batch_idx):
        loss = self.net(batch).mean()
        if self.trainer.is_global_zero:
            self.log("val", loss, sync_dist=True)  # wrong: rank0-only-collective
        return loss

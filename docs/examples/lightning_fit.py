"""A Lightning module. `devices` and `num_nodes` are read from what torchrun says; nothing in it is for dlaunch."""

import argparse
import os

import pytorch_lightning as lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 1)

    def training_step(self, batch, index):
        loss = nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.print(f"step {self.global_step + 1} loss {loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    inputs = torch.randn(4096, 32)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16)
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = lightning.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu", devices=per_node, strategy="ddp",
        num_nodes=int(os.environ["WORLD_SIZE"]) // per_node, max_steps=options.steps, logger=False,
        enable_checkpointing=False, enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Regression(), loader)


if __name__ == "__main__":
    main()

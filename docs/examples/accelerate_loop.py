"""A loop on Hugging Face accelerate; `accelerate launch` is not needed, the environment that ranks get is enough."""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(0)
    inputs = torch.randn(4096, 32)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16, shuffle=True)
    model = nn.Linear(32, 1)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 1e-2), loader)
    for step, (x, y) in zip(range(1, options.steps + 1), loader, strict=False):
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(f"step {step} loss {accelerator.gather(loss).mean().item():.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()

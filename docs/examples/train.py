"""A plain DDP script that knows nothing of dlaunch: `torchrun --nproc-per-node 2 train.py` or `dlaunch run train.py`.

`--wait-for FILE` plants a common hang: at step 20 rank 1 waits for a file that another process should have written.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def wait_for(path):
    while not path.exists():
        time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--wait-for", type=Path, metavar="FILE")
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(0)
    inputs = torch.randn(4096, 32)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    sampler = DistributedSampler(data)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    step = 0
    for epoch in range(options.steps):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=64, sampler=sampler):
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 10 == 0 and dist.get_rank() == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step == 20 and options.wait_for and dist.get_rank() == 1:
                wait_for(options.wait_for)
            if step == options.steps:
                dist.destroy_process_group()
                return


if __name__ == "__main__":
    main()

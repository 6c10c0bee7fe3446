"""What the server of ranks imports before it forks them."""

from __future__ import annotations

import gc

import torch.distributed.checkpoint  # noqa: F401

import workloads.ddp
import workloads.nd
import workloads.zero  # noqa: F401

gc.freeze()  # a collection in a rank looks at what the rank has made, not at all of torch

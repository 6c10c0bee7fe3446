"""Text as token sequences: which rank reads what at which step follows from the step alone, so resuming is exact.

Windows of seq + 1 tokens are shuffled anew each epoch. Step t trains on the global samples t·batch … (t+1)·batch − 1
and data rank r of R takes the r-th of R equal parts: another data degree at the same global batch reads the same.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from workloads.common.seeds import mixed

Tokens = npt.NDArray[np.integer]
TEXT_LIMIT = 64 << 20  # bytes of text that are read; larger corpora belong into a token file
TOKEN_TYPES = {".u8": np.uint8, ".u16": np.uint16, ".u32": np.uint32}


def load_tokens(source: str, seed: int) -> Tokens:
    """Tokens of `stdlib`, `synthetic`, a token file (.npy, .u16, .u32: memory-mapped), or a file or directory of text.

    Raises ValueError if the source does not exist or is empty.
    """
    if source == "synthetic":
        return synthetic(seed)
    path = Path(sysconfig.get_path("stdlib") if source == "stdlib" else source)
    if not path.exists():
        raise ValueError(f"data: {source} does not exist: give stdlib, synthetic, or a file or directory")
    if path.suffix == ".npy":
        mapped: Tokens = np.load(path, mmap_mode="r")
        return mapped
    if path.suffix in TOKEN_TYPES:
        return np.memmap(path, dtype=TOKEN_TYPES[path.suffix], mode="r")
    tokens = np.frombuffer(_read_text(path, "*.py" if source == "stdlib" else "**/*"), dtype=np.uint8)
    if not len(tokens):
        raise ValueError(f"data: {source} holds no text")
    return tokens


def _read_text(path: Path, pattern: str) -> bytes:
    """The bytes of a file, or of a directory's files in the order of their names, up to TEXT_LIMIT."""
    parts: list[bytes] = []
    left = TEXT_LIMIT
    for file in [path] if path.is_file() else sorted(path.glob(pattern)):
        if left > 0 and file.is_file():
            with file.open("rb") as stream:
                parts.append(stream.read(left))
            left -= len(parts[-1])
    return b"\n".join(parts)


@lru_cache(maxsize=1)
def synthetic(seed: int, length: int = 1 << 17) -> Tokens:
    """Learnable noise: each byte is a fixed function of its predecessor nine times in ten, else random."""
    random = np.random.Generator(np.random.PCG64(mixed("synthetic", seed)))
    successor = random.permutation(256).astype(np.uint8)
    tokens = random.integers(0, 256, length, dtype=np.uint8)
    jump = random.random(length) < 0.1
    for i in range(1, length):
        if not jump[i]:
            tokens[i] = successor[tokens[i - 1]]
    return tokens


@dataclass(frozen=True)
class Batch:
    """One rank's part of a step: inputs and targets (B, S) int64; `positions` (S,) where the sequence is sharded."""

    inputs: Tensor
    targets: Tensor
    positions: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        return replace(
            self,
            inputs=self.inputs.to(device, non_blocking=True),
            targets=self.targets.to(device, non_blocking=True),
        )

    def split(self, parts: int) -> Iterator[Batch]:
        """`parts` micro-batches of equal size. Raises ValueError if the sequences do not divide."""
        if len(self.inputs) % parts:
            raise ValueError(
                f"a data rank's {len(self.inputs)} sequences do not divide into {parts} micro-batches: "
                f"change --batch or --accumulate"
            )
        pairs = zip(self.inputs.chunk(parts), self.targets.chunk(parts), strict=True)
        return (replace(self, inputs=inputs, targets=targets) for inputs, targets in pairs)


@dataclass(frozen=True)
class TrainingData(Dataset[Batch]):
    """The batches of data rank `index` of `degree`: item t is the batch of step t."""

    tokens: Tokens
    batch: int  # global
    seq: int
    seed: int
    index: int
    degree: int
    reshuffle: bool = True  # another order in every epoch

    def __post_init__(self) -> None:
        if self.batch % self.degree:
            raise ValueError(
                f"the global batch of {self.batch} sequences does not divide over {self.degree} data ranks"
            )
        if self.windows < 1:
            raise ValueError(f"{len(self.tokens)} tokens are fewer than one sequence of {self.seq} + 1")

    @property
    def windows(self) -> int:
        return (len(self.tokens) - 1) // self.seq

    def samples(self, step: int) -> list[int]:
        """The windows that this rank reads at `step`."""
        part = self.batch // self.degree
        first = step * self.batch + self.index * part
        return [self._window(sample) for sample in range(first, first + part)]

    def _window(self, sample: int) -> int:
        epoch, position = divmod(sample, self.windows)
        return int(_order(self.seed, epoch if self.reshuffle else 0, self.windows)[position])

    def __getitem__(self, step: int) -> Batch:
        starts = [window * self.seq for window in self.samples(step)]
        rows = torch.from_numpy(
            np.stack([self.tokens[start : start + self.seq + 1] for start in starts]).astype(np.int64)
        )
        return Batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())

    def loader(self, first: int, last: int, workers: int) -> DataLoader[Batch]:
        """Batches of the steps first … last − 1, read ahead by `workers` processes."""
        return DataLoader(self, batch_size=None, sampler=range(first, last), num_workers=workers)


_orders: dict[tuple[int, int, int], npt.NDArray[np.int64]] = {}


def _order(seed: int, epoch: int, windows: int) -> npt.NDArray[np.int64]:
    """The shuffled order of one epoch; the last one is kept."""
    key = (seed, epoch, windows)
    if key not in _orders:
        _orders.clear()
        _orders[key] = np.random.Generator(np.random.PCG64(mixed("epoch", seed, epoch))).permutation(windows)
    return _orders[key]

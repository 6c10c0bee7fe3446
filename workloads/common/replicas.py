"""Are copies still copies? Ranks that hold the same piece of a parameter compare a hash of it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch import distributed as dist

from workloads.common.gradients import local
from workloads.common.weights import shard_of


def fingerprints(parts: Iterable[nn.Module]) -> dict[str, str]:
    """Hash of every piece that this rank holds, keyed by the parameter's name and the piece's place in it."""
    return {
        f"{name}{[(part.start, part.stop) for part in shard_of(parameter)]}": _hash(local(parameter))
        for part in parts
        for name, parameter in part.named_parameters()
    }


def _hash(piece: Tensor) -> str:
    raw = piece.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    return hashlib.blake2b(raw.tobytes(), digest_size=8).hexdigest()


def divergent(parts: Iterable[nn.Module]) -> dict[str, list[int]]:
    """Pieces of which not all holders have the same bits: the ranks in the minority. A collective over all ranks."""
    every: list[dict[str, str] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(every, fingerprints(parts))
    holders: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, prints in enumerate(every):
        for piece, value in (prints or {}).items():
            holders[piece][value].append(rank)
    return {
        piece: sorted(set().union(*versions.values()) - set(_largest(versions.values())))
        for piece, versions in holders.items()
        if len(versions) > 1
    }


def _largest(groups: Iterable[list[int]]) -> list[int]:
    """The first of the largest groups."""
    return max(groups, key=lambda ranks: len(ranks))

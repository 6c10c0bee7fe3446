"""Hosts for placement tests: from weights of our own, or from the handed matrices."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from launcher.topology import Device, HostTopology, Link, Nic
from launcher.topology.parse import parse_topology

CORPUS = Path(__file__).parents[4] / "shared" / "topo"
KINDS = (("NV", 4), ("NV", 2), ("PIX", 1), ("PHB", 1), ("NODE", 1), ("SYS", 1))


def host(
    name: str, kinds: Sequence[Sequence[tuple[str, int]]], switches: tuple[str, ...] = (), nics: int = 1
) -> HostTopology:
    """A host whose devices a and b (a < b) are joined by kinds[a][b]; each NIC has 200 Gbit/s."""
    size = len(kinds)
    return HostTopology(
        name,
        tuple(Device(i, f"GPU{i}", uuid=f"GPU-{name}-{i}") for i in range(size)),
        tuple(Nic(f"mlx5_{i}", f"mlx5_{i}", gbps=200.0, up=True) for i in range(nics)),
        tuple(Link(f"GPU{a}", f"GPU{b}", *kinds[a][b]) for a in range(size) for b in range(a + 1, size)),
        switches=switches,
    )


def uniform_host(name: str, devices: int, switches: tuple[str, ...] = (), nics: int = 1) -> HostTopology:
    return host(name, [[("NV", 18)] * devices] * devices, switches, nics)


def random_host(name: str, devices: int, rng: random.Random, switches: tuple[str, ...] = ()) -> HostTopology:
    palette = rng.sample(KINDS, rng.randint(2, 4))
    return host(name, [[rng.choice(palette) for _ in range(devices)] for _ in range(devices)], switches)


def corpus() -> Iterator[tuple[str, HostTopology, dict[str, object]]]:
    """The handed matrices with all their device rows: name, host, expectation."""
    if not CORPUS.is_dir():
        return
    for name, expected in json.loads((CORPUS / "expected.json").read_text()).items():
        if expected.get("complete_gpu_rows"):
            yield name, parse_topology((CORPUS / name).read_text(), "n1"), expected


needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the handed outputs (shared/topo) are not here")


def factorisations(size: int, most: int = 3) -> Iterator[tuple[int, ...]]:
    """All ordered products of up to `most` factors above one."""
    if size == 1:
        yield ()
        return
    for first in range(2, size + 1):
        if size % first == 0 and most > 0:
            for rest in factorisations(size // first, most - 1):
                yield (first, *rest)

"""Context parallelism: layouts as arithmetic, attention against the whole sequence, training against one process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.workloads.ranks import on_standing_ranks
from tests.workloads.reference import Run, assert_same_training, distributed, single_process
from workloads.common.config import preset
from workloads.common.context_parallel import (
    IMPLEMENTATIONS,
    Layout,
    context_attention,
    gathered_tiles,
    ring_tiles,
)
from workloads.common.mesh import Mesh, World, process_group
from workloads.common.model import Block, Transformer, full_attention
from workloads.cp import CP


def scores_of(tiles: list, rows: int, columns: int) -> Tensor:  # type: ignore[type-arg]
    """How often each score is computed by the tiles of one rank."""
    counts = torch.zeros(rows, columns, dtype=torch.int64)
    for row, column, causal in tiles:
        part = counts[row, column]
        part += torch.ones_like(part).tril() if causal else 1
    return counts


@pytest.mark.parametrize("zigzag", [False, True])
@pytest.mark.parametrize(("places", "ulysses"), [(1, 1), (2, 1), (4, 1), (3, 2), (1, 4), (2, 4)])
def test_layout_deals_every_position_once(places: int, ulysses: int, zigzag: bool) -> None:
    positions = Layout(places, ulysses, zigzag).positions(48)
    assert positions.shape == (places * ulysses, 48 // (places * ulysses))
    assert sorted(positions.flatten().tolist()) == list(range(48))


def test_zigzag_pairs_early_with_late() -> None:
    assert Layout(2, zigzag=True).positions(8).tolist() == [[0, 1, 6, 7], [2, 3, 4, 5]]


def test_layout_names_a_length_that_does_not_divide() -> None:
    with pytest.raises(ValueError, match=r"a sequence of 20 tokens does not divide by 8 context chunks"):
        Layout(4, zigzag=True).positions(20)


@pytest.mark.parametrize("zigzag", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("places", [2, 4])
def test_ring_and_gather_compute_each_visible_score_once(places: int, causal: bool, zigzag: bool) -> None:
    length = 16
    positions = Layout(places, zigzag=zigzag).positions(length)
    mask = torch.ones(length, length, dtype=torch.int64)
    mask = mask.tril() if causal else mask
    for rank, mine in enumerate(positions):
        for source, theirs in enumerate(positions):
            seen = scores_of(ring_tiles(rank, source, causal, zigzag, len(mine)), len(mine), len(theirs))
            assert torch.equal(seen, mask[mine][:, theirs])
        assert torch.equal(scores_of(gathered_tiles(mine, causal, zigzag), len(mine), length), mask[mine])


@pytest.mark.parametrize("places", [2, 4, 8])
def test_zigzag_gives_every_place_the_same_work(places: int) -> None:
    length = 64 // places
    work = [
        sum(int(scores_of(ring_tiles(r, s, True, True, length), length, length).sum()) for s in range(places))
        for r in range(places)
    ]
    assert len(set(work)) == 1


def layouts(degree: int, implementation: str) -> Iterator[Layout]:
    for zigzag in (False, True):
        if implementation == "ulysses":
            yield Layout(1, degree, zigzag)
        else:
            yield Layout(degree, 1, zigzag)
            if degree > 2 and not implementation.startswith("torch"):
                yield Layout(degree // 2, 2, zigzag)


def worst_errors(degree: int) -> dict[tuple[object, ...], float]:
    """On each rank, for every way of attention: largest error of output and gradients against the whole sequence."""
    torch.manual_seed(0)
    tensors = {kv: [torch.randn(2, 32, heads, 8) for heads in (4, kv, kv, 4)] for kv in (4, 2, 1)}
    errors: dict[tuple[object, ...], float] = {}
    with process_group(World.from_environment("cpu"), 60):
        mesh = Mesh({"cp": degree}, "cpu").view("cp")
        for implementation, causal, kv in product(IMPLEMENTATIONS, (False, True), tensors):
            *inputs, grad = tensors[kv]
            whole = [x.clone().requires_grad_() for x in inputs]
            out = full_attention(*whole, causal=causal)
            torch.autograd.backward(out, grad)
            for layout in layouts(degree, implementation):
                at = layout.positions(32)[dist.get_rank()]
                mine = [x[:, at].clone().requires_grad_() for x in inputs]
                got = context_attention(mesh, implementation, layout)(*mine, causal=causal)
                torch.autograd.backward(got, grad[:, at])
                pairs = [(got, out[:, at]), *((m.grad, w.grad[:, at]) for m, w in zip(mine, whole, strict=True))]  # type: ignore[index]
                errors[implementation, layout, causal, kv] = max(float((a - b).abs().max()) for a, b in pairs)  # type: ignore[operator]
    return errors


@pytest.mark.parametrize("degree", [2, 4])
def test_every_attention_is_right_forward_and_backward(degree: int) -> None:
    for errors in on_standing_ranks(worst_errors, degree, degree):
        assert len(errors) == 6 * (12 if degree == 2 else 18)
        wrong = {case: error for case, error in errors.items() if error > 1e-5}
        assert not wrong


def hide_nothing(model: Transformer) -> None:
    for block in model.layers.values():
        assert isinstance(block, Block)
        block.attention.causal = False


@pytest.fixture(scope="module")
def references() -> dict[bool, Run]:
    config = preset("debug", layers=2)
    return {True: single_process(config), False: single_process(config, prepare=hide_nothing)}


TRAINED = [
    ("ring", "--zigzag"),
    ("ring", "--no-zigzag"),
    ("alltoall", "--zigzag"),
    ("allgather", "--zigzag"),
    ("allgather", "--no-zigzag"),
    ("ulysses", "--no-zigzag"),
    ("torch-allgather", "--zigzag"),
]


@pytest.mark.parametrize("mesh", ["cp=2", "cp=4", "dp_shard=2,cp=2", "dp_replicate=2,cp=2"])
def test_training(references: dict[bool, Run], mesh: str) -> None:
    cases: list[tuple[str, ...]] = [
        (mesh, "--impl", implementation, order, masking)
        for implementation, order in (TRAINED if mesh in ("cp=2", "cp=4") else TRAINED[:1])
        for masking in ("--causal", "--no-causal")
    ]
    if mesh == "cp=4":
        cases.append((mesh, "--impl", "ring", "--ulysses", "2", "--causal"))
    for case in cases:
        assert_same_training(distributed(CP, *case), references["--causal" in case])


def test_impossible_share_is_refused() -> None:
    with pytest.raises(ValueError, match="ulysses has no way over 2 places"):
        context_attention(None, "ulysses", Layout(2, 1))  # type: ignore[arg-type]

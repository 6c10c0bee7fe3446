"""The table of states against what happens: bytes that are kept, collectives and bytes that are sent, counted."""

from __future__ import annotations

import pytest

from tests.workloads.ranks import on_standing_ranks
from tests.workloads.reference import TINY
from workloads.common.accounting import Account, expected_volumes
from workloads.common.counting import Kind
from workloads.common.loop import train
from workloads.common.strategy import Strategy
from workloads.cp import CP
from workloads.ddp import DDP
from workloads.ep import EP
from workloads.fsdp import FSDP
from workloads.hsdp import HSDP
from workloads.nd import ND
from workloads.pp import PP
from workloads.tp import TP
from workloads.zero import ZeRO

THREE_STEPS = (*TINY, "--steps", "3", "--count")  # DDP rebuilds its buckets in the second


def _account(kind: type[Strategy], flags: tuple[str, ...]) -> Account:
    account = train(kind(), [*THREE_STEPS, *flags]).account
    assert account is not None
    return account


def check(*cases: tuple[type[Strategy], tuple[str, ...]], world_size: int) -> list[list[Account]]:
    """Every rank's counts equal its table, for each case; the accounts by case and rank."""
    by_case = [on_standing_ranks(_account, world_size, kind, flags) for kind, flags in cases]
    for (kind, flags), ranks in zip(cases, by_case, strict=True):
        for rank, account in enumerate(ranks):
            where = f"{kind.__name__} {' '.join(flags)} rank {rank}"
            assert account.counted == expected_volumes(account.case), where
            memory = account.case.memory()
            assert account.kept == {state: memory[state] for state in account.kept}, where
    return by_case


def test_data_parallel_on_two_ranks() -> None:
    ddp, zero2, zero3, *_ = check(
        (DDP, ("--mesh", "dp_replicate=2")),
        (ZeRO, ("--mesh", "dp_shard=2", "--stage", "2")),
        (ZeRO, ("--mesh", "dp_shard=2", "--stage", "3")),
        (FSDP, ("--mesh", "dp_shard=2", "--accumulate", "2")),
        (CP, ("--mesh", "cp=2", "--impl", "ring")),
        (TP, ("--mesh", "tp=2")),
        (TP, ("--mesh", "tp=2", "--no-sequence-parallel", "--accumulate", "2")),
        (PP, ("--mesh", "pp=2", "--schedule", "1F1B", "--accumulate", "4")),
        world_size=2,
    )
    parameters = ddp[0].kept["parameters"]
    assert _logical(ddp[0]) == _logical(zero2[0]) == 2 * parameters
    assert 2 * parameters < _logical(zero3[0]) <= 3 * parameters  # the root is gathered once


@pytest.mark.parametrize(
    ("kind", "mesh"),
    [
        (HSDP, "dp_replicate=2,dp_shard=2"),
        (CP, "dp_shard=2,cp=2"),
        (TP, "dp_shard=2,tp=2"),
        (PP, "pp=2,dp_shard=2"),
        (ND, "pp=2,tp=2"),
        (ND, "cp=2,tp=2"),
    ],
)
def test_products_on_four_ranks(kind: type[Strategy], mesh: str) -> None:
    check((kind, ("--mesh", mesh, "--accumulate", "4" if "pp" in mesh else "1")), world_size=4)


def test_zero1_moves_three_times_the_parameters() -> None:
    ranks = _ranks(ZeRO, "--mesh", "dp_shard=2", "--stage", "1")
    assert all(account.counted == expected_volumes(account.case) for account in ranks)
    parameters = ranks[0].kept["parameters"]
    assert _logical(ranks[0]) == 3 * parameters
    assert sum(account.kept["optimizer"] for account in ranks) == 2 * parameters  # whole parameters: not quite even


@pytest.mark.parametrize(
    ("kind", "mesh", "world_size"),
    [(EP, "dp_shard=2,ep=2", 2), (ND, "dp_shard=2,tp=2,ep=4", 4)],
)
def test_expert_parallel_sends_in_sum_what_an_even_load_would(kind: type[Strategy], mesh: str, world_size: int) -> None:
    ranks = _ranks(kind, "--mesh", mesh, "--experts", "8", "--accumulate", "1", world_size=world_size)
    tokens = Kind("all_to_all", world_size)
    for account in ranks:
        expected, memory = expected_volumes(account.case), account.case.memory()
        assert account.counted[tokens].calls == expected[tokens].calls
        assert {**account.counted, tokens: None} == {**expected, tokens: None}
        assert account.kept == {state: memory[state] for state in account.kept}
    sent = sum(account.counted[tokens].bytes for account in ranks)
    assert sent == sum(expected_volumes(account.case)[tokens].bytes for account in ranks)


@pytest.mark.parametrize("implementation", ["allgather", "ulysses"])
def test_context_parallel_by_other_means(implementation: str) -> None:
    for account in _ranks(CP, "--mesh", "cp=2", "--impl", implementation):
        assert f"cp_{implementation}" in account.case.rows
        assert account.counted == expected_volumes(account.case)


def _ranks(kind: type[Strategy], *flags: str, world_size: int = 2) -> list[Account]:
    return on_standing_ranks(_account, world_size, kind, flags)


def _logical(account: Account) -> float:
    return sum(volume.bytes * (2 if kind.collective == "all_reduce" else 1) for kind, volume in account.counted.items())

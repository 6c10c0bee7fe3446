"""The order of files never matters: whatever their names begin with, the verdict is the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover
from tests.doctor.dumps import WORLD, Op, Recorder, grid, group

RANKS = 6
LINE = "[E207 10:00:00.1 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: "
WORK = (
    "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds\n"
)
STACK = 'Thread {rank} (active): "MainThread"\n    {frame}\n    main (train.py:9)\n'
FRAMES = {3: "_next_data (torch/utils/data/dataloader.py:1325)"}


def play(one: Recorder) -> None:
    for _ in range(9):
        one.run(Op(group(one, "tp")), Op(WORLD))
    one.run(Op(group(one, "tp"), "broadcast" if one.rank == 4 else "all_reduce"))
    one.wait(Op(WORLD))


def of_dumps(folder: Path, names: list[str]) -> None:
    for one in grid(RANKS, 2):
        play(one)
        written = one.write(folder)
        Path(written).rename(folder / f"{names[one.rank]}_rank_{one.rank}")


def of_logs(folder: Path, names: list[str]) -> None:
    for rank in range(RANKS):
        seq = 41 if rank == 2 else 44
        (folder / f"{names[rank]}.rank{rank}.log").write_text((LINE + WORK).format(rank=rank, seq=seq))


def of_stacks(folder: Path, names: list[str]) -> None:
    for rank in range(RANKS):
        frame = FRAMES.get(rank, "all_reduce (torch/distributed/distributed_c10d.py:2501)")
        (folder / f"{names[rank]}-rank{rank}.txt").write_text(STACK.format(rank=rank, frame=frame))


def answer(folder: Path) -> list[Any]:
    return [(one.code, one.ranks, one.confidence, dict(one.detail)) for one in diagnose(discover([folder])).findings]


@pytest.mark.parametrize("write", [of_dumps, of_logs, of_stacks])
def test_the_verdict_does_not_depend_on_the_order_of_files(write: Any, tmp_path: Path) -> None:
    answers = []
    for seed in range(5):
        names = random.Random(seed).sample("abcdefghijkl", RANKS)
        folder = tmp_path / str(seed)
        folder.mkdir()
        write(folder, names)
        answers.append(answer(folder))
    assert answers[0] and answers == answers[:1] * len(answers)

"""gloo aborts on sizes that do not fit: where the ranks were at that moment tells a call left out from another size."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover
from launcher.common.finding import Verdict

CLASH = "  what():  [enforce fail at gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 24 vs 16\n"
ABORT = CLASH + "Fatal Python error: Aborted\n\nThread 0x00007f11 (most recent call first):\n{frames}"
LOSS = (
    "Traceback (most recent call last):\n{frames}"
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711\n"
)
BACKWARD = [("_engine_run_backward", "/env/torch/autograd/graph.py", 829), ("step", "/app/train.py", 31)]
REDUCE = [("all_reduce", "/env/torch/distributed/distributed_c10d.py", 2501), ("step", "/app/train.py", 35)]
Place = list[tuple[str, str, int]]


def abort(place: Place) -> str:
    lines = [
        f'  File "{file}", line {line} in {name}\n' for name, file, line in [*place, ("<module>", "/app/train.py", 50)]
    ]
    return ABORT.format(frames="".join(lines))


def loss(place: Place) -> str:
    lines = [f'  File "{file}", line {line}, in {name}\n    ...\n' for name, file, line in reversed(place)]
    return LOSS.format(frames="".join(lines))


def judged(folder: Path, logs: list[str]) -> Verdict:
    for rank, text in enumerate(logs):
        (folder / f"rank{rank}.log").write_text(text)
    return diagnose(discover([folder]), "hang")


@pytest.mark.parametrize(
    ("places", "sub_cause"),
    [
        ([BACKWARD, REDUCE, BACKWARD, BACKWARD], "unused_parameter"),
        ([REDUCE, BACKWARD, REDUCE, REDUCE], "uneven_data"),
        ([REDUCE, [], REDUCE, REDUCE], "uneven_data"),
    ],
)
def test_the_rank_that_was_elsewhere_is_named(tmp_path: Path, places: list[Place], sub_cause: str) -> None:
    finding = judged(tmp_path, [abort(places[0]), *(loss(place) if place else "" for place in places[1:])]).findings[0]
    assert (finding.code, finding.ranks, finding.detail["sub_cause"]) == ("hang.desync", (1,), sub_cause)


def test_ranks_at_one_place_gave_other_sizes(tmp_path: Path) -> None:
    assert judged(tmp_path, [abort(REDUCE), loss(REDUCE), loss(REDUCE)]).answer == "hang.shape_mismatch"

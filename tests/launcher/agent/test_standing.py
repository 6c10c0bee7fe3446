"""Where a rank stands: asked only while it stands, of a recorder that is there."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher.agent.recorder_hook import FIFO
from launcher.agent.standing import AGAIN_S, NOWHERE, STILL_S, Standing, describe
from launcher.common.progress import Progress


def entry(**changed: Any) -> dict[str, Any]:
    plain = {"profiling_name": "gloo:all_reduce", "process_group": ("0", "default_pg"), "collective_seq_id": 26}
    return {**plain, "p2p_seq_id": 3, "is_p2p": False, "state": "scheduled", "retired": False, **changed}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([entry(retired=True), entry(), entry(collective_seq_id=27)], "all_reduce #26 of default_pg"),
        ([entry(retired=True), entry(state="completed")], NOWHERE),
        ([entry(profiling_name="nccl:send 0->1", is_p2p=True, state="started")], "send 0->1 #3 of default_pg"),
        ([entry(process_group=("7", ""))], "all_reduce #26 of 7"),
        (["no entry"], NOWHERE),
    ],
)
def test_the_oldest_operation_that_is_not_over(entries: list[Any], words: str) -> None:
    assert describe({"entries": entries}) == words


@pytest.mark.parametrize("document", [None, [], {}, {"entries": 3}])
def test_what_is_no_dump_tells_nothing(document: object) -> None:
    assert describe(document) is None


class Recorder:
    """A FIFO with somebody behind it, who answers when told to."""

    def __init__(self, folder: Path) -> None:
        self.dump, self._stamp = folder / "fr.3", 1
        os.mkfifo(folder / FIFO)
        self.listener = os.open(folder / FIFO, os.O_RDONLY | os.O_NONBLOCK)

    def answer(self, document: Mapping[str, Any]) -> None:
        self._stamp += 1
        self.dump.write_bytes(pickle.dumps(document))
        view = self.dump.with_name("fr.3.view.json")
        view.write_text("{}")
        os.utime(view, ns=(self._stamp, self._stamp))


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def test_a_rank_that_moves_is_not_asked(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.agent.standing.wake", lambda fifo: pytest.fail("asked"))
    standing = Standing(recorder.dump)
    for second in range(100):
        assert standing.look(Progress(time=float(second)), second + 9.0) is None
    slow = Progress(time=200.0, step_s=60.0)
    assert [standing.look(slow, 200.0 + wait) for wait in (1.0, 100.0, 290.0)] == [None] * 3


def test_a_standstill_is_told_until_it_ends(recorder: Recorder) -> None:
    standing, progress = Standing(recorder.dump), Progress(time=100.0, step_s=0.1)
    assert standing.look(progress, 101.0) is None
    assert standing.look(progress, 100.1 + STILL_S) is None  # asked, not answered yet
    recorder.answer({"entries": [entry()]})
    assert standing.look(progress, 101.1 + STILL_S) == "all_reduce #26 of default_pg"
    assert standing.look(progress, 100.2 + STILL_S + AGAIN_S) == "all_reduce #26 of default_pg"  # asked again
    recorder.answer({"entries": []})
    assert standing.look(progress, 101.2 + STILL_S + AGAIN_S) == NOWHERE
    assert standing.look(Progress(time=150.0), 150.0) is None


def test_an_old_dump_and_a_broken_one_tell_nothing(recorder: Recorder) -> None:
    recorder.answer({"entries": [entry()]})
    standing = Standing(recorder.dump)
    assert [standing.look(Progress(time=0.0), now) for now in (0.0, STILL_S + 1, STILL_S + 2)] == [None] * 3
    recorder.answer({})
    recorder.dump.write_bytes(b"\x80\x05damaged")
    assert standing.look(Progress(time=0.0), STILL_S + 3) is None


def test_a_rank_that_never_told_a_step_and_has_no_recorder(tmp_path: Path) -> None:
    standing = Standing(tmp_path / "fr.0")
    assert [standing.look(Progress(), time.time() + wait) for wait in (0.0, STILL_S + 1, 5 * STILL_S)] == [None] * 3

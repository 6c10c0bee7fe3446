"""The node side on real processes: dumps on demand, stacks and states, and nothing of it changes the program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import launcher.agent
from doctor.archives import unpack
from doctor.discover import discover
from doctor.evidence import EvidenceSet
from doctor.evidence.flight_recorder import ProcessView, normalised
from doctor.evidence.processes import ProcessState
from doctor.evidence.rank_table import RankTable
from doctor.evidence.stacks import Stack
from doctor.evidence.tabulate import tabulate
from doctor.node.files import tail
from doctor.node.gather import Request, gather
from doctor.node.reduce import reduce_dump
from doctor.rules.places import place_of
from launcher.agent.recorder_hook import FIFO
from tests.doctor.dumps import Op, recorders

STARTUP = Path(launcher.agent.__file__).parent / "startup"
PROGRAM = """
import sys, threading, time
def hold():
    print(threading.active_count(), len(sys.path), flush=True)
    time.sleep(600)
hold()
"""
DEADLINE_S = 20


@contextmanager
def rank(job: Path, program: str = PROGRAM, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is rank 0 of the job in a directory, as the shim would have made it."""
    folder = job / "ranks" / "0" / "attempt-0"
    folder.mkdir(parents=True)
    environment = {
        **os.environ,
        "RANK": "0",
        "DLAUNCH_RANK_DIR": str(folder),
        "PYTHONPATH": str(STARTUP),
        **variables,
    }
    start = f"import os; open({str(folder / 'pid')!r}, 'w').write(str(os.getpid())); "
    start += f"os.execv({sys.executable!r}, [{sys.executable!r}, '-c', {program!r}])"
    process = subprocess.Popen([sys.executable, "-S", "-c", start], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def wait_for(condition: object, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def look(job: Path, request: Request, target: Path) -> EvidenceSet:
    target.mkdir()
    archive = target / "look.tar.gz"
    archive.write_bytes(gather(replace(request, directory=str(job), ranks=(0,), samples=1)))
    folder = target / "bundle"
    assert not unpack(archive, folder)
    return discover([folder])


def listening(job: Path) -> bool:
    return (job / "ranks" / "0" / "attempt-0" / FIFO).exists()


def test_a_rank_answers_on_demand_and_notices_nothing(tmp_path: Path) -> None:
    job = tmp_path / "job"
    with rank(job) as process:
        assert process.stdout is not None
        threads, paths = process.stdout.readline().split()
        found = look(job, Request(), tmp_path / "look")
        plain = subprocess.run(
            [sys.executable, "-c", "import sys; print(len(sys.path))"], capture_output=True, text=True
        )
        assert (threads, paths) == ("1", plain.stdout.strip())
        (view,) = found.of(ProcessView)
        assert (job / "ranks" / "0" / "attempt-0" / "fr.0.view.json").exists()  # traffic is counted from what stays
        assert (view.rank, dict(view.groups)) == (0, {})
        (state,) = found.of(ProcessState)
        assert (state.rank, state.pid) == (0, process.pid)
        assert state.state in ("running", "sleeping")
        assert {place_of(stack).line.split(" (")[0] for stack in found.of(Stack)} == {"hold"}
        assert process.poll() is None
        assert psutil.Process(process.pid).status() != psutil.STATUS_STOPPED


def test_a_stopped_rank_is_told_without_waiting_for_it(tmp_path: Path) -> None:
    job = tmp_path / "job"
    with rank(job) as process:
        wait_for(lambda: listening(job), "the rank's trigger")
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "the stop")
        started = time.monotonic()
        found = look(job, Request(patience_s=60), tmp_path / "look")
        assert time.monotonic() - started < 30
        assert [state.state for state in found.of(ProcessState)] == ["stopped"]
        assert any("stopped" in gap.why for gap in found.gaps)


def test_a_rank_that_is_gone_is_told(tmp_path: Path) -> None:
    job = tmp_path / "job"
    with rank(job) as process:
        wait_for(lambda: listening(job), "the rank's trigger")
        process.kill()
        process.wait()
        found = look(job, Request(), tmp_path / "look")
        assert [state.state for state in found.of(ProcessState)] == ["gone"]


def test_what_the_recorder_of_a_rank_left_is_taken_unless_it_made_steps_after_it(tmp_path: Path) -> None:
    job = tmp_path / "job"
    with rank(job) as process:
        wait_for(lambda: listening(job), "the rank's trigger")
        process.kill()
        process.wait()
    folder = job / "ranks" / "0" / "attempt-0"
    (recorder,) = recorders(1)
    recorder.run(Op())
    dump = recorder.write(folder, "fr.{}")
    (table,) = look(job, Request(), tmp_path / "left").of(RankTable)
    assert table.rank == 0
    assert not look(job, Request(left_dumps=False), tmp_path / "well").of(RankTable)
    os.utime(dump, (1.0, 1.0))
    (folder / "stdout").write_text("step 3\n")
    assert not look(job, Request(), tmp_path / "printed").of(RankTable)
    (folder / "progress.jsonl").write_text('{"step": 3}\n')
    assert not look(job, Request(), tmp_path / "later").of(RankTable)


def test_children_of_a_rank_have_no_trigger(tmp_path: Path) -> None:
    folder = tmp_path / "ranks" / "0" / "attempt-0"
    folder.mkdir(parents=True)
    (folder / "pid").write_text("1\n")
    environment = {**os.environ, "RANK": "0", "DLAUNCH_RANK_DIR": str(folder)}
    environment["PYTHONPATH"] = str(STARTUP)
    subprocess.run([sys.executable, "-c", "pass"], env=environment, check=True)
    assert not (folder / FIFO).exists()


def test_the_users_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    paths = os.pathsep.join((str(STARTUP), str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print(sys.modules['sitecustomize'].__file__)"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["theirs", str(tmp_path / "sitecustomize.py")]


@pytest.mark.parametrize("cut", [0, 150])
def test_a_dump_is_reduced_to_a_line(cut: int) -> None:
    import pickle

    one = recorders(2)[1].run(*[Op()] * 500)
    dump = pickle.dumps(one.dump(), 2)
    line = reduce_dump(dump[: len(dump) - cut], 1, "fr.1")
    table = RankTable.from_json(json.loads(line)["dlaunch_rank_table"])
    assert len(line) < len(dump) / 8
    assert table.truncated == bool(cut)
    if not cut:
        assert table == tabulate(normalised(one.dump()), 1, "fr.1")


def test_tails_start_at_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert tail(path, 100).splitlines()[0].startswith(b"line 9")
    assert tail(tmp_path / "missing", 100) == b""

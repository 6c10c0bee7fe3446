"""Stacks in every form that people have them, where they stand, and their merged tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.evidence.stacks import Stack
from doctor.rules.places import place_of
from doctor.stack_tree import lines, merge, name_members

PY_SPY = """Process 4242: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4242 (idle): "MainThread"
    {innermost}
    train_step (train.py:31)
    <module> (train.py:99)
Thread 4300 (idle): "Thread-1"
    wait (threading.py:324)
    run (tqdm/_monitor.py:60)
"""
WAITING = "all_reduce (torch/distributed/distributed_c10d.py:2501)"
LOADING = "_try_get_data (torch/utils/data/dataloader.py:1133)"
FAULTHANDLER = """Thread 0x00007fda9002bb80 (most recent call first):
  File "/usr/lib/python3/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/jobs/train.py", line 31 in train_step
  File "/jobs/train.py", line 99 in <module>
"""
GDB = """Thread 2 (Thread 0x7f535e7fb000 (LWP 500879)):
#0  futex_wait (private=0) at ../sysdeps/nptl/futex-internal.h:183
#1  0x00007f539f454740 in ncclProxyProgress (proxyState_=0x55d847bc00c0) at proxy.cc:868

Thread 1 (Thread 0x7f53817fd000 (LWP 500875)):
#0  0x00007f539ef8699f in cuStreamSynchronize () from /lib/libcuda.so.1
#1  0x00007f539ef86aaf in at::native::item(at::Tensor const&) () from /lib/libtorch_cuda.so
"""


def stacks(folder: Path) -> list[Stack]:
    return list(discover([folder]).of(Stack))


def py_spy(folder: Path, rank: int, innermost: str) -> None:
    (folder / f"stack-rank{rank}.txt").write_text(PY_SPY.format(innermost=innermost))


def test_py_spy_text(tmp_path: Path) -> None:
    py_spy(tmp_path, 3, WAITING)
    (stack,) = stacks(tmp_path)
    assert (stack.rank, stack.pid, stack.tool, len(stack.threads)) == (3, 4242, "py-spy", 2)
    assert [frame.line for frame in stack.main.frames] == [2501, 31, 99]


def test_py_spy_json_of_two_processes(tmp_path: Path) -> None:
    frames = [{"name": "f", "filename": "/x/train.py", "short_filename": "train.py", "line": 7, "locals": None}]
    threads = [
        {
            "pid": pid,
            "thread_name": "MainThread",
            "os_thread_id": pid,
            "active": True,
            "owns_gil": True,
            "frames": frames,
        }
        for pid in (10, 11)
    ]
    (tmp_path / "dump").write_text(json.dumps(threads))
    assert [(stack.pid, stack.main.frames[0].line) for stack in stacks(tmp_path)] == [(10, 7), (11, 7)]


def test_faulthandler(tmp_path: Path) -> None:
    (tmp_path / "faulthandler_2.txt").write_text(FAULTHANDLER)
    (stack,) = stacks(tmp_path)
    place = place_of(stack)
    assert (stack.rank, place.kind, place.op, place.line) == (
        2,
        "collective",
        "all_reduce",
        "train_step (/jobs/train.py:31)",
    )


def test_gdb(tmp_path: Path) -> None:
    (tmp_path / "gdb-rank0.txt").write_text(GDB)
    (stack,) = stacks(tmp_path)
    assert [thread.frames[0].name for thread in stack.threads] == ["futex_wait", "cuStreamSynchronize"]
    assert all(thread.native for thread in stack.threads)


def test_prefixes_tell_the_ranks_of_mixed_logs(tmp_path: Path) -> None:
    text = "".join(f"[rank{rank}]: {line}\n" for rank in (0, 1) for line in FAULTHANDLER.splitlines())
    (tmp_path / "job.log").write_text("some line before\n" + text)
    assert [(stack.rank, len(stack.main.frames)) for stack in stacks(tmp_path)] == [(0, 3), (1, 3)]


@pytest.mark.parametrize(
    ("innermost", "kind"),
    [
        (WAITING, "collective"),
        ("barrier (torch/distributed/distributed_c10d.py:3938)", "collective"),
        ("recv (torch/distributed/distributed_c10d.py:2100)", "p2p"),
        ("_wait_batch_p2p (torch/distributed/pipelining/schedules.py:600)", "p2p"),
        (LOADING, "dataloader"),
        ("_save (torch/serialization.py:800)", "checkpoint"),
        ("wait (torch/utils/file_baton.py:42)", "file_lock"),
        ("compile_fx (torch/_inductor/compile_fx.py:10)", "compile"),
        ("init_process_group (torch/distributed/distributed_c10d.py:1700)", "rendezvous"),
        ("destroy_process_group (torch/distributed/distributed_c10d.py:2200)", "teardown"),
        ("interaction (pdb.py:300)", "exception"),
        ("compute (train.py:12)", "python"),
    ],
)
def test_where_a_rank_stands(tmp_path: Path, innermost: str, kind: str) -> None:
    py_spy(tmp_path, 0, innermost)
    assert place_of(stacks(tmp_path)[0]).kind == kind


@pytest.mark.parametrize(("innermost", "sub_cause"), [(LOADING, "dataloader"), ("compute (train.py:12)", "python")])
def test_without_dumps_the_one_outside_is_absent(tmp_path: Path, innermost: str, sub_cause: str) -> None:
    for rank in range(4):
        py_spy(tmp_path, rank, innermost if rank == 2 else WAITING)
    finding = diagnose(discover([tmp_path]), "hang").findings[0]
    assert (finding.code, finding.ranks, finding.detail["sub_cause"]) == ("hang.absent_rank", (2,), sub_cause)


def test_who_holds_the_interpreters_lock_is_shown_and_where_the_rank_runs(tmp_path: Path) -> None:
    def thread(name: str, owns: bool, *frames: tuple[str, str]) -> dict[str, object]:
        shown = [{"name": one, "filename": file, "line": 7} for one, file in frames]
        return {"pid": 1, "thread_name": name, "os_thread_id": 9, "active": True, "owns_gil": owns, "frames": shown}

    waiting = [thread("MainThread", False, ("all_reduce", "torch/distributed/distributed_c10d.py"))]
    blocked = [thread("MainThread", False, ("take_gil", "")), thread("Thread-3", True, ("tokenize", "feed.py"))]
    for rank, threads in enumerate((waiting, waiting, blocked)):
        stack = {"dlaunch_stack": 1, "rank": rank, "host": f"h{rank}", "threads": threads}
        (tmp_path / f"{rank}.json").write_text(json.dumps(stack))
    finding = diagnose(discover([tmp_path]), "hang").findings[0]
    assert (finding.ranks, finding.hosts, finding.detail["sub_cause"]) == ((2,), ("h2",), "gil")
    assert any("Thread-3 holds the GIL" in one.where and "tokenize" in one.text for one in finding.evidence)


def test_equal_stacks_are_no_network_fault(tmp_path: Path) -> None:
    for rank in range(4):
        py_spy(tmp_path, rank, WAITING)
    verdict = diagnose(discover([tmp_path]), "hang")
    assert verdict.answer == "unknown"
    assert "sequence numbers" in verdict.findings[0].cause


def test_all_in_the_rendezvous(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        py_spy(tmp_path, rank, "init_process_group (torch/distributed/distributed_c10d.py:1700)")
    finding = diagnose(discover([tmp_path]), "hang").findings[0]
    assert (finding.code, finding.ranks) == ("hang.rendezvous", (2,))


def test_all_in_the_teardown(tmp_path: Path) -> None:
    for rank in range(2):
        py_spy(tmp_path, rank, "destroy_process_group (torch/distributed/distributed_c10d.py:2200)")
    assert diagnose(discover([tmp_path]), "hang").answer == "hang.teardown"


def test_the_tree_folds_the_crowd_and_shows_outliers_first(tmp_path: Path) -> None:
    for rank in range(64):
        py_spy(tmp_path, rank, LOADING if rank == 40 else WAITING)
    text = list(lines(merge(stacks(tmp_path))))
    assert text[0] == "ranks 0-63"
    assert len(text) == 5
    assert "[rank 40]" in text[3]
    assert "[ranks 0-39,41-63]" in text[4]
    assert not any("tqdm" in line for line in text)


def test_members_without_a_rank_are_listed() -> None:
    assert name_members({"3", "4", "4/pt_autograd_0", "pid77"}) == "ranks 3-4; 4/pt_autograd_0; pid77"


def test_a_rank_that_came_out_of_a_wait_hangs_in_nothing(tmp_path: Path) -> None:
    for look, places in ((1, (WAITING, LOADING)), (2, (LOADING, WAITING))):
        folder = tmp_path / f"sample-{look}"
        folder.mkdir()
        for rank, line in enumerate(places):
            text = PY_SPY.format(innermost=line).replace("train.py:31", f"train.py:{31 if line == WAITING else 20}")
            (folder / f"stack-rank{rank}.txt").write_text(text)
    verdict = diagnose(discover([tmp_path]), "hang")
    assert [finding.code for finding in verdict.findings] == ["hang.none_slow"]


def test_a_stack_in_the_words_of_two_tools_is_no_step(tmp_path: Path) -> None:
    packages = "/usr/lib/python3/site-packages/torch/distributed"
    for name, line, user in (("a.txt", WAITING, "megatron/loop.py"), ("b.txt", WAITING, "/opt/megatron/loop.py")):
        text = PY_SPY.format(innermost=line.replace("torch/distributed", packages)).replace("train.py", user)
        (tmp_path / f"stack-rank0-{name}").write_text(text)
    py_spy(tmp_path, 1, LOADING)
    verdict = diagnose(discover([tmp_path]), "hang")
    assert (verdict.answer, verdict.findings[0].ranks) == ("hang.absent_rank", (1,))

"""The kernel's log keeps what befell other processes; of a job it tells what came after its start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover

STARTED = 1_796_000_000.0  # 2026-11-30T00:53:20Z
BEFORE, AFTER = "2026-11-29T23:10:00,000001+00:00", "2026-11-30T00:55:00,000001+00:00"
CRASH = (
    "pt_main_thread[4711]: segfault at 0 ip 00007f2697eb6a97 sp 00007f26730688d0 error 4 in libc.so.6[98a97,7000+1000]"
)
KILLED = "Out of memory: Killed process 4711 (python) total-vm:9000000kB, anon-rss:8000000kB, file-rss:0kB"
FAULT = "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, Ch 00000008, intr 00000000. MMU Fault"
LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus."


def causes(folder: Path, line: str) -> str:
    record = {"job": "train-1", "state": "failed", "mesh": {}, "ranks": [], "started": STARTED}
    (folder / "job.json").write_text(json.dumps(record))
    (folder / "kernel.log").write_text(f"{line}\n")
    return " ".join(finding.cause for finding in diagnose(discover([folder]), "diagnose").findings)


@pytest.mark.parametrize(
    ("message", "words"), [(CRASH, "pid 4711"), (KILLED, "pid 4711"), (FAULT, "Xid 31")], ids=["crash", "oom", "xid"]
)
def test_what_befell_a_process_counts_after_the_start(tmp_path: Path, message: str, words: str) -> None:
    assert words in causes(tmp_path, f"{AFTER} {message}")
    assert words not in causes(tmp_path, f"{BEFORE} {message}")
    assert words in causes(tmp_path, f"[ 8123.456789] {message}")  # no date: it may be the job's


def test_a_device_that_was_lost_before_the_start_is_still_lost(tmp_path: Path) -> None:
    assert "Xid 79" in causes(tmp_path, f"{BEFORE} {LOST}")


def test_a_table_of_processes_that_live_hides_no_crash(tmp_path: Path) -> None:
    (tmp_path / "ps.txt").write_text("  PID STAT WCHAN\n  881 S    futex_wait_queue\n  882 S    do_poll.constprop.0\n")
    assert "pid 4711" in causes(tmp_path, f"{AFTER} {CRASH}")

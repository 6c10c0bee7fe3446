"""Whole jobs on a real Slurm, by the commands of a user: real torchrun, small scripts, and the days that go wrong."""

from __future__ import annotations

import json
import time

import pytest

from tests.lab.namespaces import wait_until
from tests.launcher.slurm.conftest import Bench, Job

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]
ON_ONE_THREAD = ("--env", "OMP_NUM_THREADS=1")


def test_a_warned_job_resumes_and_has_the_losses_of_the_local_run(bench: Bench) -> None:
    options = ("workloads/hsdp.py", *ON_ONE_THREAD, "--nodes", "2", "--nproc-per-node", "1")
    bench.inventory(nodes=4)
    script = ("--", "--steps", "12", "--deterministic")
    local = json.loads(bench.dlaunch("run", "--json", "--cluster", "here", *options, *script).stdout)
    assert local["state"] == "succeeded", local
    job = bench.start(*options, *script, torchrun=True)
    progress = job.directory / "ranks/0/attempt-0/progress.jsonl"
    wait_until(lambda: progress.exists() and len(progress.read_text().splitlines()) > 3, "some steps", 60)
    bench.lab.run_on_login(["scancel", "--batch", "--signal=USR2", job.slurm_id])
    bench.lab.wait_for_job(job.slurm_id, "PENDING")
    row = job.row()
    assert row["state"] == "pending"
    assert "requeued" in row["reason"] and "two minutes" in row["reason"]
    ended = job.wait()
    assert (ended["state"], ended["attempts"]) == ("succeeded", 2), ended
    assert 3 < len(progress.read_text().splitlines()) < 12
    assert job.losses() == Job(bench, local["job"], bench.folder / "home/jobs").losses()


def test_a_good_day_and_a_younger_cluster_that_gives_its_id_again(bench: Bench) -> None:
    """When Slurm's state is lost its ids begin anew: the record must not take another job's word for its own."""
    job = bench.start("counter.py", "--nodes", "4", "--", "2")
    assert job.wait()["state"] == "succeeded"
    assert [node["host"] for node in job.record["nodes"]] == ["n1", "n3", "n2", "n4"], "neighbours at a switch"
    assert "from 0 on n3" in bench.dlaunch("logs", job.id, "--rank", "1").stdout
    other = bench.lab.run_on_login(["sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 30"]).stdout.strip()
    forged = {**job.record, "state": "running", "ended": None, "slurm_id": other}
    (job.directory / "job.json").write_text(json.dumps(forged))
    assert job.row()["state"] == "succeeded", "its own files say so"
    assert bench.lab.job_state(other).startswith(("RUNNING", "PENDING"))


def test_a_run_that_meets_its_time_limit_goes_on_in_the_next(bench: Bench) -> None:
    """A minute is the least limit that Slurm knows, and it looks every half minute whom it has to warn."""
    bench.inventory(nodes=1, time="1", signal_seconds=55)
    job = bench.start("counter.py", "--", "100000")
    wait_until(lambda: len(job.output(0, attempt=1)) > 5, "the next run", 120)
    assert "warned" in job.events()
    bench.dlaunch("stop", job.id)
    assert job.record["state"] == "stopped"
    counted = [int(line) for line in job.output(0) if line.isdigit()]
    assert counted == list(range(1, len(counted) + 1))


FAILS_ONCE = """\
import os, sys
if os.environ["RANK"] == "1" and os.environ["DLAUNCH_ATTEMPT"] == "0": sys.exit("broken on purpose")
print("on", os.uname().nodename, flush=True)
"""
FAILS_ON = """\
import os, sys, time
from pathlib import Path

attempt = os.environ["DLAUNCH_ATTEMPT"]
failed = Path(f"failed-{attempt}")
print(os.uname().nodename, "of", os.environ["WORLD_SIZE"], flush=True)
if os.uname().nodename == sys.argv[1]:
    failed.touch()
    sys.exit("bad node")
while attempt != "2" and not failed.exists():
    time.sleep(0.05)
if attempt != "2":
    time.sleep(0.5)
    sys.exit("only a victim")
"""


def test_a_failed_attempt_is_started_again_in_the_same_allocation(bench: Bench) -> None:
    (bench.folder / "fails_once.py").write_text(FAILS_ONCE)
    job = bench.start("fails_once.py", "--max-restarts", "1")
    ended = job.wait()
    assert (ended["state"], ended["attempts"]) == ("succeeded", 2), ended
    assert job.events().count("allocated") == 1


def test_an_elastic_job_goes_on_without_a_node_that_failed_twice(bench: Bench) -> None:
    (bench.folder / "fails_on.py").write_text(FAILS_ON)
    job = bench.start("fails_on.py", "--nodes", "2:3", "--max-restarts", "2", "--sbatch", "nodelist=n[1-3]", "--", "n2")
    ended = job.wait()
    assert (ended["state"], ended["attempts"]) == ("succeeded", 3), ended
    assert [node["host"] for node in job.record["nodes"]] == ["n1", "n3"]
    assert job.output(0)[-1] == "n1 of 2"


def test_a_preempted_job_comes_back(bench: Bench) -> None:
    bench.inventory(nodelist="n[1-2]")
    job = bench.start("counter.py", "--", "100")
    job.wait_for_lines(5)
    bench.lab.run_on_login(
        [
            "sbatch",
            "--partition=urgent",
            "--nodes=2",
            "--nodelist=n[1-2]",
            "--exclusive",
            "--output=/dev/null",
            "--wrap=true",
        ]
    )
    bench.lab.wait_for_job(job.slurm_id, "PENDING")
    assert job.wait()["state"] == "succeeded"
    for rank in (0, 1):
        counted = [int(line) for line in job.output(rank) if line.isdigit()]
        assert counted == list(range(1, 101))


def test_a_lost_node_is_replaced_and_left_out_of_later_jobs(bench: Bench) -> None:
    job = bench.start("counter.py", "--", "600")
    job.wait_for_lines(5)
    lost = job.record["nodes"][1]["host"]
    bench.lab.crash(lost)
    wait_until(lambda: len(list(job.directory.glob("ranks/0/attempt-1/stdout"))) == 1, "the next attempt", 120)
    assert lost not in {node["host"] for node in job.record["nodes"]}
    assert lost in job.record["reason"] or "a node failed" in job.record["reason"]
    notes = json.loads(bench.dlaunch("render", "--json", "counter.py").stdout)
    assert (f"--exclude={lost}" in notes["sbatch"]) == any(lost in note for note in notes["notes"])
    bench.dlaunch("stop", "--grace", "5", job.id)
    bench.lab.boot(lost)


def test_stop_waits_for_the_ranks_to_save(bench: Bench) -> None:
    job = bench.start("counter.py", "--", "10000")
    job.wait_for_lines(5)
    done = bench.dlaunch("stop", job.id)
    assert (done.returncode, job.record["state"]) == (0, "stopped")
    assert (job.directory / "checkpoints/0").exists()
    wait_until(lambda: "R" not in _queue(bench), "the end of the batch script")


def _queue(bench: Bench) -> list[str]:
    return bench.lab.run_on_login(["squeue", "--noheader", "--format=%t"]).stdout.split()


def test_a_job_that_is_cancelled_from_outside_is_stopped_and_says_so(bench: Bench) -> None:
    job = bench.start("counter.py", "--", "10000")
    job.wait_for_lines(5)
    bench.lab.run_on_login(["scancel", job.slurm_id])
    assert job.wait()["state"] == "stopped"
    assert "scancel" in job.record["reason"]


WAITS = """\
import time
from pathlib import Path

print("up", flush=True)
while not Path("go").exists():
    time.sleep(0.05)
print("went on")
"""


def test_ranks_go_on_without_their_supervisor(bench: Bench) -> None:
    (bench.folder / "waits.py").write_text(WAITS)
    job = bench.start("waits.py")
    job.wait_for_lines(1)
    first = bench.lab.run_on_login(["squeue", "--noheader", "--format=%B", f"--jobs={job.slurm_id}"]).stdout.strip()
    bench.lab.run_on_node(first, ["pkill", "-9", "-f", "submitit.core._submit"])
    wait_until(lambda: job.row()["state"] == "unsupervised", "somebody to notice")
    (bench.folder / "go").touch()
    assert job.wait()["state"] == "succeeded"
    assert job.output(0) == ["up", "went on"]


def test_a_waiting_job_says_why_and_can_be_taken_out(bench: Bench) -> None:
    lab = bench.lab
    lab.run_on_login(["sbatch", "--nodes=4", "--exclusive", "--time=10", "--output=/dev/null", "--wrap=sleep 60"])
    job = bench.start("counter.py", "--", "3")
    wait_until(lambda: "expected start" in job.row()["reason"], "an expected start", 30)
    assert job.row()["state"] == "pending"
    assert "nodes to become free" in job.row()["reason"] or "higher priority" in job.row()["reason"]
    bench.dlaunch("stop", job.id)
    assert job.record["state"] == "stopped"
    assert lab.job_state(job.slurm_id).startswith("CANCELLED")


def test_tasks_that_a_dead_slurmd_left_do_not_survive_the_next_attempt(bench: Bench) -> None:
    bench.inventory(nodelist="n[1-2]")
    job = bench.start("counter.py", "--", "10000")
    job.wait_for_lines(5)
    bench.lab.kill_slurmd("n2")
    bench.lab.run_on_login(["scontrol", "requeue", job.slurm_id])
    time_of_requeue = time.time()
    bench.lab.start_slurmd("n2")
    wait_until(lambda: len(list(job.directory.glob("ranks/1/attempt-1/stdout"))) == 1, "the next attempt", 120)
    argv = ["sh", "-c", f"grep -zl ^DLAUNCH_JOB={job.id} /proc/[0-9]*/environ | wc -l"]
    started = [int(pid) for pid in bench.lab.run_on_node("n2", ["pgrep", "-f", "counter.py 10000"]).stdout.split()]
    assert bench.lab.run_on_node("n2", argv).returncode == 0
    ages = [
        float(bench.lab.run_on_node("n2", ["ps", "-o", "etimes=", "-p", str(pid)], check=False).stdout or 0)
        for pid in started
    ]
    assert max(ages) <= time.time() - time_of_requeue + 1


def test_a_script_that_prints_nothing_succeeds(bench: Bench) -> None:
    (bench.folder / "silent.py").write_text("import time; time.sleep(1)\n")
    job = bench.start("silent.py")
    assert job.wait()["state"] == "succeeded"
    assert job.output(0) == []


def test_a_script_that_fails_names_its_first_rank(bench: Bench) -> None:
    (bench.folder / "fails.py").write_text(
        "import os, time\nif os.environ['RANK'] == '1': raise ValueError('broken on purpose')\ntime.sleep(60)\n"
    )
    job = bench.start("fails.py", torchrun=True)
    ended = job.wait()
    assert (ended["state"], ended["first_failure"]["rank"]) == ("failed", 1)
    assert "broken on purpose" in ended["first_failure"]["error"]
    assert ended["first_failure"]["host"] == job.record["nodes"][1]["host"]

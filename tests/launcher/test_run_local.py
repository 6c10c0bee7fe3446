"""Jobs on this machine, with real torchruns and ranks: good days and bad ones."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from dataclasses import replace

import psutil
import pytest

from tests.support.dlaunch import SAY_AND_WAIT, Dlaunch, members, no_members, ready, wait_until

pytestmark = pytest.mark.timeout(300)
TWO = ("--nodes", "2", "--nproc-per-node", "1")
BARE = (*TWO, "--no-torchrun")  # where torchrun is not the point, its start only costs time


def kill_supervisor(dlaunch: Dlaunch, job: str) -> None:
    supervisor = dlaunch.record(job).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_until(lambda: dlaunch.json("ps")["jobs"][0]["state"] == "unsupervised", "the loss of the supervisor shows")


def test_a_job_succeeds_and_says_so(dlaunch: Dlaunch) -> None:
    script = dlaunch.script("import os; print('hello from', os.environ['RANK'])")
    done = dlaunch.run("run", script, *TWO)
    assert done.returncode == 0, done.stderr
    assert "hello from 0" in done.stdout and "succeeded" in done.stdout
    shown = dlaunch.run("logs", "last").stdout
    assert "node1:1:dp_replicate1 | hello from 1" in shown
    (job,) = dlaunch.json("ps")["jobs"]
    for status in dlaunch.statuses(job["job"]):
        assert status.collectable == {"stacks": True, "flight_recorder": True}
        assert status.versions["torch"]


def test_what_render_prints_is_what_runs(dlaunch: Dlaunch) -> None:
    script = dlaunch.script(SAY_AND_WAIT)
    wanted = dlaunch.json("render", script, *TWO, "--env", "COLOUR=red", "--", "--flag", "a b")
    job = dlaunch.detach(script, *TWO, "--env", "COLOUR=red", "--", "--flag", "a b")
    dlaunch.wait_for_ranks(job, 2)
    ready(dlaunch.work, [0, 1])
    for status, node in zip(dlaunch.statuses(job), wanted["nodes"], strict=True):
        assert status.launcher_pid is not None
        torchrun = psutil.Process(status.launcher_pid)
        port = wanted["nodes"][0]["argv"][wanted["nodes"][0]["argv"].index("--rdzv-endpoint") + 1]
        fresh = dlaunch.record(job).job
        real = [word.replace(fresh, wanted["job"]) for word in torchrun.cmdline()]
        endpoint = real.index("--rdzv-endpoint") + 1
        real[endpoint] = port
        assert real == node["argv"]
        environment = torchrun.environ()
        for variable in node["environment"]:
            assert environment[variable["name"]].replace(fresh, wanted["job"]) == variable["value"]
        pid = status.ranks[0].pid
        assert pid is not None
        of_rank = psutil.Process(pid).environ()
        for name, value in node["rank_environment"][str(status.ranks[0].rank)].items():
            assert of_rank[name].replace(fresh, wanted["job"]) == value
        assert of_rank["COLOUR"] == "red"
        assert psutil.Process(pid).cmdline()[-2:] == ["--flag", "a b"]


def test_a_terminal_that_is_killed_leaves_the_job_alone(dlaunch: Dlaunch) -> None:
    script = dlaunch.script(SAY_AND_WAIT)
    terminal = subprocess.Popen(
        dlaunch.argv("run", script, *TWO), env=dlaunch.env, cwd=dlaunch.work, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    ready(dlaunch.work, [0, 1])
    os.killpg(terminal.pid, signal.SIGKILL)
    terminal.wait()
    (dlaunch.work / "go").touch()
    assert dlaunch.json("wait", "last")["state"] == "succeeded"


def test_a_job_whose_supervisor_is_killed_goes_on_and_wait_adopts_it(dlaunch: Dlaunch) -> None:
    job = dlaunch.detach(dlaunch.script(SAY_AND_WAIT), *BARE)
    ready(dlaunch.work, [0, 1])
    before = dlaunch.wait_for_ranks(job, 2)
    kill_supervisor(dlaunch, job)
    assert all(psutil.pid_exists(pid) for pid in before.values())
    (dlaunch.work / "go").touch()
    assert dlaunch.json("wait", job)["state"] == "succeeded"
    assert dlaunch.rank_pids(job) == before


def test_stop_adopts_too_and_nothing_survives(dlaunch: Dlaunch) -> None:
    job = dlaunch.detach(dlaunch.script(SAY_AND_WAIT), *BARE)
    ready(dlaunch.work, [0, 1])
    kill_supervisor(dlaunch, job)
    assert dlaunch.json("stop", job, "--grace", "2")["state"] == "stopped"
    no_members(job)


def test_a_restart_that_is_due_after_the_supervisor_was_killed(dlaunch: Dlaunch) -> None:
    script = dlaunch.script(
        SAY_AND_WAIT + "if rank == 1 and os.environ['DLAUNCH_ATTEMPT'] == '0': raise SystemExit(3)\n"
    )
    job = dlaunch.detach(script, *BARE, "--max-restarts", "1")
    ready(dlaunch.work, [0, 1])
    kill_supervisor(dlaunch, job)
    (dlaunch.work / "go").touch()
    document = dlaunch.json("wait", job)
    assert (document["state"], document["attempts"]) == ("succeeded", 2)
    assert "rank 1 attempt 1" in dlaunch.output(job, 1, attempt=1)


def test_an_agent_that_is_killed_takes_its_ranks_along_and_is_named(dlaunch: Dlaunch) -> None:
    job = dlaunch.detach(dlaunch.script(SAY_AND_WAIT), *TWO)
    ready(dlaunch.work, [0, 1])
    pids = dlaunch.wait_for_ranks(job, 2)
    os.kill(dlaunch.statuses(job)[1].pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pids[1]), "the rank dies with its agent", 10)
    document = dlaunch.json("wait", job, status=1)
    assert document["first_failure"]["host"] == "node1"
    assert "agent was killed" in document["first_failure"]["error"]
    no_members(job)


def test_a_rank_that_raises_is_named_with_its_traceback(dlaunch: Dlaunch) -> None:
    script = dlaunch.script(SAY_AND_WAIT + "if rank == 1: raise ValueError('no such layer')\ntime.sleep(60)\n")
    (dlaunch.work / "go").touch()
    done = dlaunch.run("run", script, *TWO)
    assert done.returncode == 1
    assert "s, exit status 1\nfirst failure: rank 1 on node1: ValueError: no such layer" in done.stdout
    assert "Traceback" in done.stdout


READS_THE_ENVIRONMENT = """\
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", total.item())
dist.destroy_process_group()
"""
PROGRAM = """\
#!/bin/sh
echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR $*"
touch "$0.$RANK"
until [ "$RANK" = 3 ] && [ -e "$0.0" ] && [ -e "$0.1" ] && [ -e "$0.2" ]; do sleep 0.1; done
exit 7
"""


def test_without_torchrun_ranks_read_the_environment_themselves(dlaunch: Dlaunch) -> None:
    done = dlaunch.run("run", dlaunch.script(READS_THE_ENVIRONMENT), *BARE)
    assert done.returncode == 0, done.stderr
    assert "sum 2.0" in done.stdout


def test_without_torchrun_any_program_is_a_rank(dlaunch: Dlaunch) -> None:
    script = dlaunch.script(PROGRAM, "program")
    shape = ("--nodes", "2", "--nproc-per-node", "2", "--no-torchrun")
    assert "chmod +x" in dlaunch.run("run", script, *shape).stderr
    (dlaunch.work / "program").chmod(0o755)
    document = dlaunch.json("run", script, *shape, "--", "a b", status=1)
    failure = document["first_failure"]
    assert (failure["rank"], failure["host"], failure["error"]) == (3, "node1", "ended with status 7")
    assert document["exit_status"] == failure["exit_status"] == 7
    assert list(failure["victims"]) == [0, 1, 2]
    for rank in range(4):
        assert dlaunch.output(document["job"], rank) == f"{rank}/4 {rank % 2}/2 {rank // 2} 127.0.0.1 a b\n"
    no_members(document["job"])


def test_a_rank_that_is_killed_is_named_with_the_signal(dlaunch: Dlaunch) -> None:
    job = dlaunch.detach(dlaunch.script(SAY_AND_WAIT), *TWO)
    ready(dlaunch.work, [0, 1])
    os.kill(dlaunch.wait_for_ranks(job, 2)[1], signal.SIGKILL)
    failure = dlaunch.json("wait", job, status=1)["first_failure"]
    assert (failure["rank"], failure["error"]) == (1, "killed by SIGKILL")
    no_members(job)


LEAVES_EARLY = """\
import os
import torch.distributed as dist
dist.init_process_group("gloo")
import torch
for step in range(3):
    dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    os._exit(0)
dist.all_reduce(torch.ones(1))
"""


def test_a_rank_that_leaves_early_with_status_0_is_the_cause(dlaunch: Dlaunch) -> None:
    failure = dlaunch.json("run", dlaunch.script(LEAVES_EARLY), *TWO, status=1)["first_failure"]
    assert failure["rank"] == 1 and "ended early" in failure["error"]
    assert list(failure["victims"]) == [0]


def test_stop_ends_the_whole_tree(dlaunch: Dlaunch) -> None:
    child = "import subprocess; subprocess.Popen(['setsid', 'sleep', '600'])\n"
    job = dlaunch.detach(dlaunch.script(child + SAY_AND_WAIT), *TWO)
    ready(dlaunch.work, [0, 1])
    assert len(members(job)) >= 6  # two torchruns, two ranks, two sleeps
    document = dlaunch.json("stop", job, "--grace", "3")
    assert document["state"] == "stopped"
    assert members(job) == []


def test_ctrl_c_without_a_terminal_stops(dlaunch: Dlaunch) -> None:
    script = dlaunch.script(SAY_AND_WAIT)
    following = subprocess.Popen(
        dlaunch.argv("run", script, *BARE), env=dlaunch.env, cwd=dlaunch.work, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    ready(dlaunch.work, [0, 1])
    following.send_signal(signal.SIGINT)
    out, _ = following.communicate(timeout=60)
    assert following.returncode == 1 and "stopped" in out


def test_a_port_that_is_taken_meanwhile_costs_a_new_port_and_no_restart(dlaunch: Dlaunch) -> None:
    """The listener sits on the port of the first attempt before its torchruns can."""
    from launcher.jobs.control import start
    from launcher.jobs.prepare import prepare
    from launcher.jobs.request import RunRequest

    script = dlaunch.script("print('done')")
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("0.0.0.0", 0)) as taken:
        patch.setenv("DLAUNCH_HOME", str(dlaunch.home))
        patch.chdir(dlaunch.work)
        prepared = prepare(RunRequest(script, nodes="2", nproc_per_node=1))
        port = taken.getsockname()[1]
        job = start(replace(prepared, rendezvous=replace(prepared.rendezvous, port=port)))
        document = dlaunch.json("wait", job.record.job)
    assert (document["state"], document["attempts"]) == ("succeeded", 2)
    events = dlaunch.paths(job.record.job).events.read_text()
    assert "took the rendezvous port" in events


def test_two_jobs_at_once_do_not_meet(dlaunch: Dlaunch) -> None:
    script = dlaunch.script(SAY_AND_WAIT)
    jobs = [dlaunch.detach(script, *BARE, "--name", name) for name in ("one", "two")]
    for job in jobs:
        dlaunch.wait_for_ranks(job, 2)
    (dlaunch.work / "go").touch()
    assert [dlaunch.json("wait", job)["state"] for job in jobs] == ["succeeded"] * 2


def test_a_script_with_a_name_that_shells_dislike(dlaunch: Dlaunch) -> None:
    script = dlaunch.script("import sys; print(sys.argv[1:])", 'it\'s $HOME/a "b" ü/my job.py')
    done = dlaunch.run("run", script, *BARE, "--", "*", "a\nb", "$(exit 1)", "")
    assert done.returncode == 0, done.stderr
    assert "['*', 'a\\nb', '$(exit 1)', '']" in done.stdout


def test_a_rank_that_prints_200_mb_and_no_utf8(dlaunch: Dlaunch) -> None:
    script = dlaunch.script(
        "import sys\nline = b'x' * 199 + b'\\n'\n"
        "for _ in range(1_000_000 if __import__('os').environ['RANK'] == '1' else 0): sys.stdout.buffer.write(line)\n"
        "sys.stdout.buffer.write(b'\\xff\\xfe end\\n')\n"
    )
    job = dlaunch.detach(script, *BARE)
    assert dlaunch.json("wait", job)["state"] == "succeeded"
    assert (dlaunch.paths(job).stdout(1, 0)).stat().st_size > 200_000_000
    with (dlaunch.work / "shown").open("wb") as file:
        shown = subprocess.Popen(dlaunch.argv("logs", job, "--grep", "end"), env=dlaunch.env, stdout=file)
    most = 0
    process = psutil.Process(shown.pid)

    def over() -> bool:
        nonlocal most
        if shown.poll() is None:
            most = max(most, process.memory_info().rss)
        return shown.poll() is not None

    wait_until(over, "logs ends", 120)
    assert "node1:1:dp_replicate1 | �� end" in (dlaunch.work / "shown").read_text()
    assert most < 200_000_000


def test_secrets_reach_the_ranks_and_no_file(dlaunch: Dlaunch) -> None:
    secret = "s3cr3t-value-of-a-token"
    script = dlaunch.script(
        "import os; assert os.environ['MY_TOKEN'] == 's3cr3t' + '-value-of-a-token'; print('had it')"
    )
    done = dlaunch.run("run", script, *BARE, "--env", f"MY_TOKEN={secret}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert secret not in done.stdout + done.stderr
    assert secret not in dlaunch.run("render", script, *BARE, "--env", f"MY_TOKEN={secret}", "--json").stdout
    holding = [path for path in dlaunch.home.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert holding == []


def test_files_are_for_their_owner_alone(dlaunch: Dlaunch) -> None:
    dlaunch.run("run", dlaunch.script("print(1)"), *TWO)
    (job,) = (dlaunch.home / "jobs").iterdir()
    ours = [path for path in job.rglob("*") if path.is_dir() and path.parent.name != "torchrun-0"]
    for directory in [job, *(path for path in ours if "attempt_0" not in path.parts)]:
        assert directory.stat().st_mode & 0o077 == 0, directory


@pytest.mark.parametrize(
    ("args", "status", "wanted"),
    [
        (["run", "none.py"], 2, "no such script: none.py"),
        (["run", "workloads/hspd.py"], 2, "did you mean 'workloads/hsdp.py'"),
        (["run", "workloads/hsdp.py", "--nodes", "0"], 2, "--nodes"),
        (
            ["run", "workloads/hsdp.py", "--mesh", "tp=3"],
            2,
            "--mesh: tp=3 has 3 ranks, but 4 nodes x 2 processes are 8",
        ),
        (["run", "workloads/hsdp.py", "--cluster", "x"], 2, "no cluster 'x'"),
        (["run", "workloads/hsdp.py", "--inventory", "none.yaml"], 2, "none.yaml: cannot read: No such file"),
        (["rnu"], 2, "did you mean 'run'"),
        (["logs", "none"], 2, "no job on record"),
    ],
)
def test_a_wrong_wish_is_told_in_one_line_and_starts_nothing(
    dlaunch: Dlaunch, args: list[str], status: int, wanted: str
) -> None:
    done = dlaunch.run(*args, "--json")
    assert done.returncode == status
    assert wanted in done.stderr and "Traceback" not in done.stderr
    assert wanted in json.loads(done.stdout)["error"]
    assert not (dlaunch.home / "jobs").exists()

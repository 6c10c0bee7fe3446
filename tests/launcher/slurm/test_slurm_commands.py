"""Slurm's own commands, asked for real: polling, the side channel, what is refused, whose ranks are where."""

from __future__ import annotations

import getpass
import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from launcher.errors import CannotActError
from launcher.hosts.bundle import shared_bundle
from launcher.hosts.protocol import on_all
from launcher.hosts.slurm import SlurmHost
from launcher.jobs.slurm_foreign import find_foreign
from launcher.slurm import client
from launcher.slurm.client import Poller, SlurmCallError
from launcher.slurm.session import Session
from tests.lab.namespaces import wait_until
from tests.lab.slurm import SlurmLab
from tests.lab.slurm_config import ClusterShape
from tests.launcher.slurm.conftest import Bench

pytestmark = pytest.mark.lab


def submit(lab: SlurmLab, *options: str, wrap: str = "sleep 60") -> str:
    argv = ["sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={wrap}"]
    return lab.run_on_login(argv).stdout.strip()


def test_the_queue_tells_state_reason_and_nodes(bench: Bench, login: SlurmLab) -> None:
    running = submit(login, "--nodes=4", "--exclusive", "--job-name=a b")
    login.wait_for_job(running, "RUNNING")
    waiting = submit(login, "--nodes=2", "--time=10")
    wait_until(lambda: login.job_state(waiting).endswith(("Resources", "Priority")), "a reason")
    jobs = {job.id: job for job in client.queue(getpass.getuser())}
    assert (jobs[running].state.name, jobs[running].nodes, jobs[running].name) == ("RUNNING", "n[1-4]", "a b")
    assert (jobs[waiting].state.name, jobs[waiting].time_limit_s) == ("PENDING", 600)
    assert jobs[waiting].reason in ("Resources", "Priority")
    assert client.show_job(running).working_directory == str(login.work)


def test_without_accounting_nothing_is_known_and_that_is_no_error(login: SlurmLab) -> None:
    assert client.accounting(["1"]) == []


def test_an_unknown_job_is_named_as_such(login: SlurmLab) -> None:
    with pytest.raises(SlurmCallError) as raised:
        client.show_job("987654")
    assert raised.value.refusal.kind == "unknown_job"


def test_a_controller_that_is_down_is_told_and_comes_back(bench: Bench, login: SlurmLab) -> None:
    job = submit(login, "--nodes=1")
    poller = Poller()
    assert job in poller.look().jobs
    login.stop_controller()
    wait_until(lambda: bool(poller.look().trouble), "the trouble", 60)
    assert job in poller.look().jobs, "what was seen last is still there"
    login.start_controller()
    wait_until(lambda: not poller.look().trouble, "the end of the trouble", 60)
    assert poller.look().jobs[job].state.name in ("PENDING", "RUNNING")


def test_polls_become_rare_while_nothing_changes(login: SlurmLab) -> None:
    poller = Poller()
    first = poller.look()
    assert poller.look() is first
    assert poller.look(oldest=0.0) is not first
    again = poller.look()
    wait_until(lambda: poller.look() is not again, "the next poll")


def test_commands_run_beside_a_job_that_holds_everything(bench: Bench, login: SlurmLab) -> None:
    job = submit(login, "--nodes=4", "--gpus-per-node=8", "--exclusive", wrap="srun sleep 60")
    login.wait_for_job(job, "RUNNING")
    hosts = [SlurmHost(f"n{index}", job) for index in range(1, 5)]
    answers = on_all(hosts, lambda host: host.run(["sh", "-c", "hostname; cat; exit 3"], input=b"said\n"))
    said = {name: (answer.status, answer.text) for name, answer in answers.whole().items()}
    assert said == {f"n{index}": (3, f"n{index}\nsaid\n") for index in range(1, 5)}
    assert b"".join(hosts[1].stream(["echo", "one"])) == b"one\n"


def test_the_living_nodes_answer_when_one_is_gone(bench: Bench, login: SlurmLab) -> None:
    job = submit(login, "--nodes=2", "--no-kill", "--nodelist=n2,n4")
    login.wait_for_job(job, "RUNNING")
    login.network.cut("n4")
    try:
        answers = on_all([SlurmHost(name, job) for name in ("n2", "n4")], lambda host: host.run(["hostname"]))
    finally:
        login.network.heal("n4")
    assert (list(answers.good), list(answers.failed)) == (["n2"], ["n4"])


def test_long_answers_of_all_nodes_do_not_mix(bench: Bench, login: SlurmLab) -> None:
    job = submit(login, "--nodes=4")
    login.wait_for_job(job, "RUNNING")
    nodes = ("n1", "n2", "n3", "n4")
    bundle = shared_bundle(bench.folder / "node-side", with_psutil=False)
    absent = [f"/absent/{number:0500}" for number in range(100)]
    arguments = {"directory": str(bench.folder), "paths": absent}
    with closing(Session(job, nodes, sys.executable, bundle, bench.folder / "log")) as session:
        for _ in range(3):
            answers = session.ask("describe", arguments)
            assert [(node, answer["hostname"]) for node, answer in answers.items()] == [(n, n) for n in nodes]
            assert all(answer["missing"] == absent for answer in answers.values())
        with pytest.raises(CannotActError, match=r"n\d: nonsense failed: ValueError"):
            session.ask("nonsense", {})
        login.run_on_node("n4", ["pkill", "-KILL", "-f", " serve$"])
        with pytest.raises(CannotActError, match="n4 did not answer: srun: error: n4: task 3: Killed"):
            session.ask("describe", arguments)


def test_nodes_are_borrowed_for_a_look_and_given_back(bench: Bench) -> None:
    (host,) = json.loads(bench.dlaunch("topo", "--json", "n3").stdout)["hosts"]
    assert (host["host"], host["switches"]) == ("n3", ["spine", "leaf1"])
    checked = json.loads(bench.dlaunch("preflight", "--json", "--quick", "--nodes", "2").stdout)["hosts"]
    assert [entry["verdict"] for entry in checked] == ["good", "good"]
    refused = bench.dlaunch("topo", "n9")
    assert (refused.returncode, "Invalid node name" in refused.stderr) == (3, True)
    assert not bench.lab.run_on_login(["squeue", "--noheader", "--states=pending,running"]).stdout


RANKS = """\
export RANK=$SLURM_PROCID LOCAL_RANK=0 WORLD_SIZE=$SLURM_NTASKS MASTER_ADDR=n1 MASTER_PORT=29500
exec unshare --pid --fork --mount-proc python3 -u wait.py
"""


def test_ranks_of_a_job_of_others_are_found_also_in_containers(bench: Bench, login: SlurmLab) -> None:
    (bench.folder / "wait.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    (bench.folder / "ranks.sh").write_text(RANKS)
    job = submit(login, "--nodes=2", f"--chdir={bench.folder}", wrap="srun --output=up-%t sh ranks.sh")
    wait_until(lambda: all(_holds(bench.folder / f"up-{task}", "up") for task in (0, 1)), "both ranks")
    found = find_foreign(f"slurm:{job}")
    assert [(rank.rank, rank.world_size, rank.script) for rank in found.ranks] == [(0, 2, "wait.py"), (1, 2, "wait.py")]
    assert [rank.process.host for rank in found.ranks] == client.hostnames(found.status.nodes)
    assert {rank.endpoint for rank in found.ranks} == {"n1:29500"}
    assert all(abs(rank.process.start_time - time.time()) < 60 for rank in found.ranks)
    assert not found.missing
    shown = bench.dlaunch("ps", f"slurm:{job}")
    assert shown.returncode == 0
    assert [line.split()[:2] for line in shown.stdout.splitlines()] == [["rank", "0"], ["rank", "1"]]
    assert all(f"pid {rank.process.pid} " in shown.stdout for rank in found.ranks)


OF_ANOTHER = """\
export RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=n1 MASTER_PORT=29500
exec sleep 60
"""


def test_ranks_of_another_user_are_found_with_sudo_and_unknown_without(bench: Bench, login: SlurmLab) -> None:
    job = submit(login, "--nodes=1", "--uid=nobody", "--gid=nogroup", "--chdir=/tmp", wrap=OF_ANOTHER)
    login.wait_for_job(job, "RUNNING")
    refused = bench.dlaunch("ps", f"slurm:{job}")
    assert (refused.returncode, "belongs to nobody: only with --sudo" in refused.stdout + refused.stderr) == (3, True)
    wait_until(lambda: bench.dlaunch("ps", f"slurm:{job}", "--sudo").returncode == 0, "the rank's process")
    shown = bench.dlaunch("ps", f"slurm:{job}", "--sudo").stdout
    assert shown.startswith("rank    0") and shown.rstrip().endswith("sleep")


def _holds(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


@pytest.mark.parametrize(
    ("keys", "status", "words"),
    [
        ({"partition": "nosuch"}, 2, "nvalid partition"),
        ({"sbatch": {"partitoin": "x"}}, 2, "did you mean 'partition'"),
        ({"cpus_per_task": 64}, 2, "than its partition allows"),
        ({"partition": "short", "time": "1:00:00", "nodes": 1}, 2, "than its partition allows"),
        ({"mem": "1T"}, 2, "not available"),
        ({"gres": "nosuch:1"}, 2, "generic resource"),
    ],
)
def test_what_cannot_start_is_said_at_once_with_slurms_reason(
    bench: Bench, keys: dict[str, object], status: int, words: str
) -> None:
    bench.inventory(**keys)
    done = bench.dlaunch("run", "--json", "counter.py", "--", "3")
    assert (done.returncode, json.loads(done.stdout.splitlines()[-1])["schema"]) == (status, 1)
    assert words in done.stderr
    assert not bench.lab.run_on_login(["squeue", "--noheader"]).stdout


def test_a_folder_without_room_is_said_before_anything_is_sent(bench: Bench) -> None:
    full = bench.folder / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=4", "full", full], check=True)
    try:
        bench.inventory(directory=str(full))
        done = bench.dlaunch("run", "counter.py", "--", "3")
    finally:
        subprocess.run(["umount", full], check=True)
    assert done.returncode == 3
    assert "No space left" in done.stderr
    assert not bench.lab.run_on_login(["squeue", "--noheader"]).stdout


def test_render_prints_the_script_that_is_sent(bench: Bench) -> None:
    bench.inventory(account="a1", constraint="big", setup=["module load x"], sbatch={"mail-type": "END"})
    shown = json.loads(bench.dlaunch("render", "--json", "counter.py", "--", "3").stdout)
    for line in ("--account=a1", "--constraint=big", "--mail-type=END", "--nodes=2", "--signal=B:USR2@90"):
        assert f"#SBATCH {line}\n" in shown["sbatch"]
    assert "submitit.core._submit" in shown["sbatch"]
    assert [node["host"] for node in shown["nodes"]] == ["NODE0", "NODE1"]
    assert "module load x" in shown["nodes"][0]["command_line"]


def test_jobs_by_plain_sbatch_are_listed(bench: Bench, login: SlurmLab) -> None:
    job = submit(login, "--nodes=2", "--job-name=plain")
    login.wait_for_job(job, "RUNNING")
    rows = json.loads(bench.dlaunch("ps", "--json").stdout)["jobs"]
    (row,) = [row for row in rows if row["job"] == f"slurm:{job}"]
    assert (row["name"], row["cluster"], row["state"], row["nodes"], row["ranks"]) == (
        "plain",
        "hpc",
        "running",
        2,
        None,
    )


def test_accounting_knows_jobs_that_the_queue_has_forgotten(monkeypatch: pytest.MonkeyPatch, lab: SlurmLab) -> None:
    with SlurmLab(ClusterShape(nodes=1, leaves=(("n1",),))) as second:
        monkeypatch.setenv("SLURM_CONF", second.env["SLURM_CONF"])
        job = submit(second, wrap="exit 4")
        second.wait_for_job(job, "FAILED")
        from tests.lab import namespaces

        with namespaces.entered(second.network.namespace("login")):
            wait_until(lambda: [one for one in client.accounting([job]) if one.state.ended], "the accounting", 30)
            (known,) = client.accounting([job])
    assert (known.state.name, known.nodes, known.exit_code and known.exit_code.status) == ("FAILED", "n1", 4)

"""Jobs on real SSH hosts: the same results as at home, and the bad days of hosts and links."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.seed import HostOptions
from tests.lab.ssh import SshLab
from tests.support.dlaunch import BIN, SAY_AND_WAIT, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
NOTICED_S = 15.0
BARE = "--no-torchrun"  # where the ranks need no torch, its start on each host only costs time


class LabJobs:
    """`dlaunch` on the login node of a lab; scripts lie in a folder that all hosts share."""

    def __init__(self, lab: SshLab, shared: Path) -> None:
        self.lab, self.shared = lab, shared
        self.configure()

    def configure(self, **settings: Any) -> None:
        """Write the inventory anew: one rank a host, our Python, scripts run in the shared folder."""
        base = {"python": sys.executable, "workdir": str(self.shared), "nproc_per_node": 1, "shared_filesystem": False}
        (self.lab.home / "inventory.yaml").write_text(self.lab.inventory_yaml(**{**base, **settings}))

    def argv(self, *args: str) -> list[str]:
        return ["env", "-C", str(self.lab.home), str(BIN / "dlaunch"), *args]

    def run(self, *args: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
        return self.lab.run_on_login(self.argv(*args), timeout=timeout)

    def json(self, *args: str, status: int = 0) -> Any:
        done = self.run(args[0], "--json", *args[1:])
        assert done.returncode == status, done.stderr + done.stdout
        return json.loads(done.stdout)

    def script(self, text: str, name: str = "job.py") -> str:
        (self.shared / name).write_text(text)
        return str(self.shared / name)

    def record(self, job: str) -> dict[str, Any]:
        path = self.lab.home / ".local/state/dlaunch/jobs" / job / "job.json"
        return dict(json.loads(path.read_text()))

    def begun(self, *ranks: int) -> None:
        """Wait until SAY_AND_WAIT has begun on `ranks`."""
        for rank in ranks:
            wait_until((self.shared / f"ready-{rank}").exists, f"rank {rank} begins")

    def processes(self, host: str, job: str) -> str:
        """What of `job` still runs on `host`, by a look from inside."""
        look = f"grep -l 'DLAUNCH_JOB={job}' /proc/[0-9]*/environ 2>/dev/null | grep -v self || true"
        return self.lab.run_on(host, ["sh", "-c", look]).stdout


@pytest.fixture(scope="module")
def lab(ssh_lab_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    """Four hosts with what is often odd: names that resolve to loopback, a clock that is off, a shell that talks."""
    shared = tmp_path_factory.mktemp("shared")
    odd = {
        "n2": HostOptions(name_is_loopback=True),
        "n3": HostOptions(clock_offset_s=3600, files={"/root/.bashrc": "echo welcome to n3; echo mind the step >&2\n"}),
    }
    with SshLab(4, share=[shared], per_host=odd) as lab:
        yield lab


@pytest.fixture
def jobs(lab: SshLab) -> Iterator[LabJobs]:
    shared = Path(lab.share[0])
    for path in shared.iterdir():
        if path.is_file():
            path.unlink()
    jobs = LabJobs(lab, shared)
    yield jobs
    for host in lab.hosts:
        lab.heal(host)
    for row in jobs.json("ps")["jobs"]:
        if row["state"] not in ("succeeded", "failed", "stopped"):
            jobs.run("stop", row["job"], "--grace", "1")


def test_hsdp_on_four_hosts_gives_the_losses_of_this_machine(jobs: LabJobs, tmp_path: Path) -> None:
    steps = ["--nproc-per-node", "1", "--", "--steps", "3", "--data", "synthetic"]
    there = jobs.json("run", "workloads/hsdp.py", "--nodes", "4", *steps)
    here = subprocess.run(
        [str(BIN / "dlaunch"), "run", "--json", "workloads/hsdp.py", "--nodes", "4", *steps],
        env={**os.environ, "DLAUNCH_HOME": str(tmp_path)}, cwd=tmp_path, capture_output=True, check=True,
    )  # fmt: skip
    home = json.loads(here.stdout)
    assert there["state"] == home["state"] == "succeeded"
    assert (there["first_loss"], there["last_loss"]) == (home["first_loss"], home["last_loss"])
    assert there["last_loss"] < there["first_loss"]


def test_odd_hosts_meet_and_their_logs_are_read(jobs: LabJobs) -> None:
    script = jobs.script(
        "import os, torch, torch.distributed as d; d.init_process_group('gloo')\n"
        "x = torch.ones(1); d.all_reduce(x); print('sum', x.item(), os.environ.get('GLOO_SOCKET_IFNAME'))\n"
        "d.destroy_process_group()"  # without, gloo aborts a rank that ends while a peer closes its connections
    )
    assert jobs.json("run", BARE, script, "--nodes", "4")["state"] == "succeeded"
    shown = jobs.run("logs", "last").stdout
    assert "n2:1:dp_replicate1 | sum 4.0 eth0" in shown
    assert "sum 4.0 None" in shown


def test_a_host_that_cannot_be_reached_is_named_and_nothing_starts(jobs: LabJobs) -> None:
    jobs.lab.cut("n3")
    done = jobs.run("run", jobs.script("print(1)"), "--nodes", "4")
    assert done.returncode == 3
    assert "n3" in done.stderr and "n2" not in done.stderr
    for host in ("n1", "n2", "n4"):
        assert not jobs.processes(host, "job-")


@pytest.mark.parametrize("watched", [True, False])
def test_a_host_that_is_lost_is_noticed_and_the_rest_is_stopped(jobs: LabJobs, watched: bool) -> None:
    """It freezes under a supervisor that sees it; or its cable is pulled, and who adopts the job finds it gone."""
    job = jobs.json("run", "--detach", BARE, jobs.script(SAY_AND_WAIT), "--nodes", "3")["job"]
    jobs.begun(0, 1, 2)
    wait_until(lambda: jobs.record(job)["state"] == "running", "the job runs")
    if watched:
        jobs.lab.freeze("n2")
        wait_until(lambda: "n2" in jobs.record(job)["reason"], "the loss shows", NOTICED_S)
    else:
        os.kill(jobs.record(job)["supervisor"]["pid"], signal.SIGKILL)
        jobs.lab.cut("n2")
    document = jobs.json("wait", job, status=1)
    assert document["first_failure"]["host"] == "n2"
    assert document["first_failure"]["error"].startswith("lost")
    for host in ("n1", "n3"):
        assert not jobs.processes(host, job)
    assert jobs.record(job)["unreached"] == ["n2"] and jobs.processes("n2", job)
    jobs.lab.heal("n2")
    assert jobs.run("stop", job, "--grace", "1").returncode == 0
    wait_until(lambda: not jobs.processes("n2", job), "what ran on the lost host ends")
    assert not jobs.record(job)["unreached"]


def test_a_spare_takes_the_place_of_a_lost_host(jobs: LabJobs) -> None:
    folder = jobs.shared / "dlaunch"
    jobs.configure(spares=["n4"], shared_filesystem=True, directory=str(folder))
    job = jobs.json("run", "--detach", BARE, jobs.script(SAY_AND_WAIT), "--nodes", "3", "--max-restarts", "1")["job"]
    jobs.begun(0, 1, 2)
    wait_until(lambda: jobs.record(job)["state"] == "running", "the job runs")
    jobs.lab.cut("n2")
    wait_until(lambda: "n2" in jobs.record(job)["reason"], "the loss shows", NOTICED_S)
    (jobs.shared / "ready-1").unlink()
    wait_until((jobs.shared / "ready-1").exists, "rank 1 begins on the spare")
    (jobs.shared / "go").touch()
    document = jobs.json("wait", job)
    assert (document["state"], document["attempts"]) == ("succeeded", 2)
    assert [node["host"] for node in jobs.record(job)["nodes"]] == ["n1", "n4", "n3"]
    wait_until(lambda: not jobs.processes("n2", job), "the lost host's agent sees that it was replaced", 15)


def test_spares_without_a_shared_file_system_are_refused(jobs: LabJobs) -> None:
    jobs.configure(spares=["n4"])
    done = jobs.run("run", jobs.script("print(1)"), "--nodes", "3", "--max-restarts", "1")
    assert done.returncode == 2 and "shared_filesystem: true" in done.stderr


def test_a_restart_that_would_begin_anew_is_told_before(jobs: LabJobs) -> None:
    plan = jobs.run("run", "--dry-run", jobs.script("print(1)"), "--nodes", "2", "--max-restarts", "1").stdout
    assert "a restart begins at step 0" in plan


def test_too_many_nodes_are_refused(jobs: LabJobs) -> None:
    done = jobs.run("run", jobs.script("print(1)"), "--nodes", "5")
    assert done.returncode == 2 and "--nodes: 5 nodes asked for, but the cluster has 4 hosts" in done.stderr


def test_an_unknown_key_is_refused_with_what_to_do(jobs: LabJobs) -> None:
    known = jobs.lab.known_hosts.read_text()
    try:
        jobs.lab.known_hosts.write_text("".join(line for line in known.splitlines(True) if not line.startswith("n3,")))
        done = jobs.run("run", jobs.script("print(1)"), "--nodes", "4")
        assert done.returncode == 3
        assert "n3" in done.stderr and "ssh-keyscan" in done.stderr
    finally:
        jobs.lab.known_hosts.write_text(known)


def test_a_script_that_is_not_there_is_told_before_the_start(jobs: LabJobs) -> None:
    script = jobs.lab.home / "only_here.py"
    script.write_text("print('here')")
    done = jobs.run("run", str(script), "--nodes", "2")
    # the checkout's temporary folder is not shared with the hosts
    assert done.returncode == 3 and f"n1 has no file {script}" in done.stderr and "--sync" in done.stderr


def test_a_folder_to_run_in_that_is_not_there_is_told_before_the_start(jobs: LabJobs) -> None:
    jobs.configure(workdir=str(jobs.lab.home))
    done = jobs.run("run", jobs.script("print(1)"), "--nodes", "2")
    assert done.returncode == 3 and f"n1 has no folder {jobs.lab.home} to run in" in done.stderr, done.stderr
    assert "workdir:" in done.stderr
    ours = jobs.json("render", "workloads/ddp.py", "--nodes", "2")
    assert all(node["command_line"].endswith(f"{node['workdir']}/workloads/ddp.py") for node in ours["nodes"])


def test_sync_brings_the_code_along(jobs: LabJobs) -> None:
    project = jobs.lab.home / "project"
    project.mkdir(exist_ok=True)
    (project / "helper.py").write_text("WORD = 'carried'\n")
    (project / "train.py").write_text("import helper; print(helper.WORD)\n")
    jobs.configure(workdir=None)
    argv = ["env", "-C", str(project), str(BIN / "dlaunch"), "run", BARE, "train.py", "--sync", "--nodes", "2"]
    done = jobs.lab.run_on_login([*argv, "--inventory", str(jobs.lab.home / "inventory.yaml")])
    assert done.returncode == 0, done.stderr
    assert "carried" in done.stdout


def test_a_full_disk_is_named(ssh_lab_ready: None, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with SshLab(2, share=[shared], per_host={"n2": HostOptions(disk="64m")}) as lab:
        jobs = LabJobs(lab, shared)
        script = jobs.script(
            "import os, sys\nif os.environ['RANK'] == '1':\n"
            "    while True:\n        sys.stdout.write('x' * 100_000); sys.stdout.flush()\n"
            "import time; time.sleep(100)\n"
        )
        failure = jobs.json("run", BARE, script, "--nodes", "2", status=1)["first_failure"]
        assert failure["host"] == "n2"
        assert "No space left" in failure["error"] or "full" in failure["error"]


def test_the_inventory_of_the_lab_is_valid(lab: SshLab) -> None:
    assert yaml.safe_load(lab.inventory_yaml())["default"] == "lab"

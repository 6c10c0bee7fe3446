"""A Slurm job that others started: the stacks of its ranks, by srun beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.rules.suspects import witnesses_of
from tests.doctor.live.test_live import all_stand
from tests.lab.namespaces import wait_until
from tests.lab.slurm import SlurmLab
from tests.launcher.slurm.conftest import Bench, bench, lab, login

__all__ = ["bench", "lab", "login"]  # fixtures
pytestmark = pytest.mark.lab

WAIT = "import time\ndef load_batch():\n    open(f'up-{RANK}', 'w').close()\n    time.sleep(60)\n"
RANKS = """\
export RANK=$SLURM_PROCID LOCAL_RANK=0 WORLD_SIZE=$SLURM_NTASKS MASTER_ADDR=n1 MASTER_PORT=29500
exec python3 -u wait.py
"""


def test_stacks_of_a_job_of_others(bench: Bench, login: SlurmLab) -> None:
    (bench.folder / "wait.py").write_text("import os\nRANK = os.environ['RANK']\n" + WAIT + "load_batch()\n")
    (bench.folder / "ranks.sh").write_text(RANKS)
    argv = ["sbatch", "--parsable", "--output=/dev/null", "--nodes=2", f"--chdir={bench.folder}"]
    job = login.run_on_login([*argv, "--wrap=srun sh ranks.sh"]).stdout.strip()
    wait_until(lambda: all((bench.folder / f"up-{rank}").exists() for rank in (0, 1)), "both ranks")
    bundle = bench.folder / "bundle.tar.gz"
    argv = ["ddoctor", "collect", "--interval", "0.5", f"slurm:{job}", "-o", str(bundle)]
    done = login.run_on_login(argv, env=bench.env)
    assert not done.stderr
    evidence = discover([bundle])
    stacks = evidence.once(witnesses_of).stacks
    assert sorted(stacks) == [0, 1]
    assert {stack.main.frames[0].name for stack in stacks.values()} == {"load_batch"}
    assert diagnose(evidence, "hang").findings[0].detail["sub_cause"] == "dataloader"
    live = login.run_on_login(["ddoctor", "hang", "--interval", "0.5", job], env=bench.env, check=False)
    assert (live.returncode, "load_batch" in live.stdout) == (1, True), "a bare Slurm id does too"


def test_a_hang_is_named_when_no_node_belongs_to_the_job_any_more(bench: Bench, login: SlurmLab) -> None:
    shutil.copy(Path(__file__).with_name("broken.py"), bench.folder)
    job = bench.start("broken.py", "--nproc-per-node", "2", "--", "data")
    wait_until(lambda: all_stand(job.directory, 4), "every rank tells where it stands", 120)
    bench.dlaunch("stop", job.id)
    done = login.run_on_login(["ddoctor", "hang", "--json", job.id], env=bench.env, check=False)
    verdict = json.loads(done.stdout)
    finding = verdict["findings"][0]
    assert (verdict["answer"], finding["ranks"]) == ("hang.absent_rank", [3]), verdict
    assert finding["detail"]["sub_cause"] == "dataloader"


def test_a_slurm_id_that_nobody_knows(bench: Bench, login: SlurmLab) -> None:
    done = login.run_on_login(["ddoctor", "hang", "slurm:987654"], env=bench.env, check=False)
    assert done.returncode == 2 and "Slurm knows no job slurm:987654" in done.stderr

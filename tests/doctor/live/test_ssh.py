"""The doctor over SSH: every host looks at its own ranks, and one that is lost does not stop the others."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doctor.live.test_live import SCRIPT
from tests.lab.seed import HostOptions
from tests.lab.ssh import SshLab
from tests.support.dlaunch import BIN, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
HOSTS = 4


@pytest.fixture(scope="module")
def lab(ssh_lab_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    """Four hosts of one rank each; the clock of one is an hour off."""
    shared = tmp_path_factory.mktemp("shared")
    shutil.copy(SCRIPT, shared)
    with SshLab(HOSTS, share=[shared], per_host={"n3": HostOptions(clock_offset_s=3600)}) as lab:
        settings = {"python": sys.executable, "workdir": str(shared), "nproc_per_node": 1, "shared_filesystem": False}
        (lab.home / "inventory.yaml").write_text(lab.inventory_yaml(**settings))
        yield lab


def call(lab: SshLab, program: str, *arguments: str) -> Any:
    done = lab.run_on_login(["env", "-C", str(lab.home), str(BIN / program), *arguments], timeout=120)
    return json.loads(done.stdout) if "--json" in arguments else done


def progress(lab: SshLab, job: str) -> int:
    """Bytes of progress that rank 0 wrote."""
    look = f"cat $(find / -path '*{job}/ranks/0/attempt-0/progress.jsonl' -not -path '/proc/*' 2>/dev/null) | wc -c"
    return int(lab.run_on("n1", ["sh", "-c", look]).stdout or 0)


def test_a_hang_over_ssh_names_the_host(lab: SshLab) -> None:
    script = str(Path(lab.share[0]) / SCRIPT.name)
    job = call(lab, "dlaunch", "run", script, "--nodes", str(HOSTS), "--detach", "--json", "--", "skip")["job"]
    try:
        sizes: list[int] = []

        def still() -> bool:
            sizes.append(progress(lab, job))
            return len(sizes) > 8 and sizes[-1] > 0 and len(set(sizes[-8:])) == 1

        wait_until(still, "the job hangs")
        verdict = call(lab, "ddoctor", "hang", job, "--json")
        finding = verdict["findings"][0]
        assert (verdict["answer"], finding["ranks"], finding["hosts"]) == ("hang.cross_group_cycle", [3], ["n4"])
    finally:
        call(lab, "dlaunch", "stop", job)

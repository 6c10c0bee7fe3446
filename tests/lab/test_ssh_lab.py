"""The SSH lab is what it says it is, and goes without a trace."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.namespaces import NAMED, processes
from tests.lab.seed import HostOptions
from tests.lab.ssh import SshLab

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("ssh_lab_ready")]
OPTIONS = HostOptions(
    name_is_loopback=True,
    clock_offset_s=3600,
    disk="64m",
    shm="8m",
    files={"/usr/local/bin/nvidia-smi": "#!/bin/sh\necho GPU 0: H200\n"},
)


@pytest.fixture(scope="module")
def lab(ssh_lab_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    with SshLab(3, share=[tmp_path_factory.mktemp("shared")], per_host={"n2": OPTIONS}) as lab:
        yield lab


def ssh(lab: SshLab, host: str, command: str, **options: int) -> subprocess.CompletedProcess[str]:
    given = [f"-o{key}={value}" for key, value in options.items()]
    return lab.run_on_login(["ssh", "-F", str(lab.ssh_config), *given, host, command])


def test_each_host_is_a_machine_of_its_own(lab: SshLab, tmp_path: Path) -> None:
    look = f"hostname; cat /proc/sys/kernel/random/boot_id; ls -d {tmp_path}"
    said = [ssh(lab, host, look).stdout.split() for host in lab.hosts]
    assert [lines[0] for lines in said] == lab.hosts
    assert len({lines[1] for lines in said}) == 3
    assert all(len(lines) == 2 for lines in said), "our /tmp shows on a host"


def test_a_host_sees_this_checkout_and_keeps_its_writes(lab: SshLab) -> None:
    mark = Path(__file__).with_name(f"written-on-n1-{os.getpid()}")
    assert ssh(lab, "n1", f"touch {mark} && {sys.executable} -c 'import launcher'").returncode == 0
    assert not mark.exists()
    assert ssh(lab, "n3", f"ls {mark}").returncode != 0


def test_a_shared_folder_is_one_for_all(lab: SshLab) -> None:
    shared = lab.share[0]
    ssh(lab, "n1", f"echo from n1 > {shared}/note")
    assert ssh(lab, "n3", f"cat {shared}/note").stdout == "from n1\n"
    assert Path(shared, "note").read_text() == "from n1\n"


def test_options_make_a_host_particular(lab: SshLab) -> None:
    assert ssh(lab, "n2", "getent hosts n2").stdout.startswith("127.0.1.1")
    assert ssh(lab, "n1", "getent hosts n2").stdout.startswith(lab.address("n2"))
    ahead = int(ssh(lab, "n2", "date +%s").stdout) - int(time.time())
    assert 3590 < ahead < 3610
    assert ssh(lab, "n2", "nvidia-smi").stdout == "GPU 0: H200\n"
    full = ssh(lab, "n2", "head -c 100m /dev/zero > /root/big")
    assert "No space left" in full.stderr
    assert ssh(lab, "n2", "df --output=size -m /dev/shm | tail -1").stdout.strip() == "8"


def test_a_cut_host_is_unreachable_until_it_heals(lab: SshLab) -> None:
    lab.cut("n3")
    assert ssh(lab, "n3", "true", ConnectTimeout=1).returncode == 255
    lab.heal("n3")
    assert ssh(lab, "n3", "true", ConnectTimeout=20).returncode == 0


def test_a_frozen_host_accepts_and_says_nothing(lab: SshLab) -> None:
    lab.freeze("n3")
    assert "banner" in ssh(lab, "n3", "true", ConnectTimeout=1).stderr
    lab.heal("n3")
    assert ssh(lab, "n3", "true").returncode == 0


def test_a_crashed_host_boots_with_a_fresh_disk(lab: SshLab) -> None:
    ssh(lab, "n3", "touch /root/mark")
    lab.crash("n3")
    assert processes(lab.namespace("n3")) == []
    lab.boot("n3")
    assert ssh(lab, "n3", "ls /root/mark", ConnectTimeout=20).returncode == 2


def test_nothing_of_a_lab_is_left(ssh_lab_ready: None) -> None:
    with SshLab(2) as lab:
        assert ssh(lab, "n1", "setsid -f sleep 1000 </dev/null >/dev/null 2>&1").returncode == 0
        survivor = lab.start_on_login(["setsid", "sleep", "1000"])
        folders = [NAMED / lab.namespace(name) for name in ("login", "n1", "n2")]
        assert all(folder.exists() for folder in folders)
    assert survivor.wait(timeout=5) == -9
    assert not any(folder.exists() for folder in folders)
    assert not lab.directory.exists()
    mounts = Path("/proc/self/mountinfo").read_text()
    assert lab.namespace("") not in mounts and str(lab.directory) not in mounts

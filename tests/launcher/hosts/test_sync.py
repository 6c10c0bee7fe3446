"""`--sync`: which files travel, how little of them, and that no host ever sees half a tree."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from launcher.agent.held_tree import hold_tree
from launcher.errors import InputError
from launcher.hosts import sync
from launcher.hosts.local import LocalHost
from launcher.hosts.protocol import Completed, Host, HostError
from launcher.hosts.sync import REMOTE, Sync, code_root, pack, read_tree


class CountingHost(LocalHost):
    """This machine, which counts the bytes that it is sent."""

    sent = 0

    def run(
        self, argv: Sequence[str], *, input: bytes = b"", env: Mapping[str, str] | None = None, timeout: float = 30
    ) -> Completed:
        self.sent += len(input)
        return super().run(argv, input=input, env=env, timeout=timeout)


def git(folder: Path, *arguments: str) -> None:
    quiet = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, env=quiet)


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init")
    write(folder, {"train.py": "print('hi')", "lib/a.py": "a = 1", ".gitignore": "*.ckpt\nout/\n", "gone.py": ""})
    git(folder, "add", ".")
    git(folder, "commit", "-m", "all")
    return folder


def paths(folder: Path) -> list[str]:
    return [entry.path for entry in read_tree(folder).entries]


class TestWhichFiles:
    def test_tracked_and_untracked_but_not_ignored(self, repository: Path) -> None:
        write(repository, {"new.py": "", "big.ckpt": "x", "out/log": "x"})
        (repository / "gone.py").unlink()
        assert paths(repository) == [".gitignore", "lib/a.py", "new.py", "train.py"]

    def test_repositories_inside_are_folders_of_it(self, repository: Path) -> None:
        inner = repository / "third party"
        inner.mkdir()
        git(inner, "init")
        write(inner, {"b.py": "", ".gitignore": "*.o", "b.o": ""})
        assert {"third party/b.py", "third party/.gitignore"} <= set(paths(repository))
        assert "third party/b.o" not in paths(repository)

    def test_a_folder_without_git_leaves_out_what_is_no_code(self, tmp_path: Path) -> None:
        write(tmp_path, dict.fromkeys(("a.py", "a.pyc", "__pycache__/a.pyc", ".venv/x", "my-env/pyvenv.cfg"), ""))
        write(tmp_path, {"my-env/lib/x.py": "", "sub/b.py": "", ".hidden": ""})
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "to-sub").symlink_to("sub")
        assert paths(tmp_path) == [".hidden", "a.py", "sub/b.py", "to-sub"]

    def test_the_root_is_the_top_of_the_repository(self, repository: Path, tmp_path: Path) -> None:
        assert code_root(repository / "lib") == repository
        assert code_root(tmp_path) == tmp_path

    def test_data_is_refused_with_its_name(self, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sync, "MOST_BYTES", 2 << 20)
        (repository / "corpus.bin").write_bytes(bytes(3 << 20))
        with pytest.raises(InputError, match=r"3 MB of code, more than 2; the largest is corpus\.bin") as caught:
            read_tree(repository)
        assert ".gitignore" in caught.value.help

    def test_the_digest_changes_with_content_name_and_mode(self, repository: Path) -> None:
        digests = [read_tree(repository).digest, read_tree(repository).digest]
        assert digests[0] == digests[1]
        (repository / "train.py").chmod(0o755)
        digests.append(read_tree(repository).digest)
        write(repository, {"train.py": "print('ho')"})
        digests.append(read_tree(repository).digest)
        (repository / "train.py").rename(repository / "main.py")
        digests.append(read_tree(repository).digest)
        assert len(set(digests)) == 4


class TestTransfer:
    @pytest.fixture
    def base(self, tmp_path: Path) -> str:
        return str(tmp_path / "host" / "code")

    def test_the_tree_arrives_as_it_is(self, repository: Path, base: str) -> None:
        awkward = {"with space.py": "1", "quo'te\"$x.py": "2", "ünï.py": "3", "-dash": "4"}
        write(repository, {**awkward, "run.sh": "#!/bin/sh"})
        (repository / "run.sh").chmod(0o755)
        (repository / "link").symlink_to("lib/a.py")
        Path(os.fsdecode(bytes(repository) + b"/\xff.py")).write_text("5")
        folder = Path(Sync(read_tree(repository), base).to(LocalHost(), sys.executable))
        same = subprocess.run(["diff", "-r", "--no-dereference", "-x", ".git", str(repository), str(folder)])
        assert same.returncode == 0
        assert os.access(folder / "run.sh", os.X_OK)
        assert not os.access(folder / "with space.py", os.X_OK)

    def test_only_what_changed_travels(self, repository: Path, base: str) -> None:
        host = CountingHost()
        write(repository, {"large.py": "".join(map(str, range(100_000)))})
        first = Sync(read_tree(repository), base).to(host, sys.executable)
        assert host.sent > 100_000
        host.sent = 0
        write(repository, {"train.py": "print('ho')"})
        second = Sync(read_tree(repository), base).to(host, sys.executable)
        assert host.sent < 3_000
        assert first != second
        assert Path(first, "train.py").read_text() == "print('hi')"
        assert Path(second, "train.py").read_text() == "print('ho')"
        assert Path(second, "large.py").read_bytes() == Path(repository, "large.py").read_bytes()

    def test_what_a_job_writes_into_its_tree_stays_there(self, repository: Path, base: str) -> None:
        first = Path(Sync(read_tree(repository), base).to(LocalHost(), sys.executable))
        (first / "lib/a.py").write_text("changed")
        write(repository, {"train.py": "other"})
        second = Path(Sync(read_tree(repository), base).to(LocalHost(), sys.executable))
        assert (second / "lib/a.py").read_text() == "a = 1"

    @pytest.mark.parametrize("kept", [0, 1, 20, 400, -1])
    def test_a_transfer_that_breaks_off_leaves_nothing(self, repository: Path, base: str, kept: int) -> None:
        tree = read_tree(repository)
        archive = pack(tree, frozenset(entry.name for entry in tree.entries))
        entries = [[entry.path, entry.kind, entry.name] for entry in tree.entries]
        header = json.dumps({"digest": tree.digest, "size": len(archive), "entries": entries}).encode()
        whole = header + b"\n" + archive
        done = LocalHost().run([sys.executable, "-c", REMOTE.read_text(), "build", base], input=whole[:kept])
        assert done.status != 0
        assert not Path(base).exists()

    def test_a_content_that_is_not_what_its_name_says_is_refused(self, base: str) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            archive.addfile(tarfile.TarInfo(hashlib.sha256(b"right").hexdigest()), io.BytesIO())
        header = json.dumps({"digest": "tree", "size": len(buffer.getvalue()), "entries": []}).encode()
        whole = header + b"\n" + buffer.getvalue()
        done = LocalHost().run([sys.executable, "-c", REMOTE.read_text(), "build", base], input=whole)
        assert b"damaged on its way" in done.stderr
        assert list(Path(base, "objects").iterdir()) == []
        assert not Path(base, "tree").exists()

    def test_a_file_that_changes_meanwhile_is_an_error(self, repository: Path, base: str) -> None:
        tree = read_tree(repository)
        write(repository, {"train.py": "changed"})
        with pytest.raises(InputError, match=r"train\.py: changed while"):
            Sync(tree, base).to(LocalHost(), sys.executable)

    def test_a_host_without_that_python_is_named(self, repository: Path, base: str) -> None:
        with pytest.raises(HostError, match=r"gpu7: --sync failed: .*no-such-python"):
            Sync(read_tree(repository), base).to(LocalHost("gpu7"), "no-such-python")

    def test_old_trees_go_unless_a_job_uses_them(self, repository: Path, base: str) -> None:
        folders = []
        for number in range(8):
            write(repository, {"train.py": f"print({number})"})
            folders.append(Path(Sync(read_tree(repository), base).to(LocalHost(), sys.executable)))
            if number == 1:
                lock = hold_tree(str(folders[1] / "lib"))
                assert lock is not None
                assert hold_tree(base) is None
            for path in Path(base, "objects").iterdir():
                os.utime(path, (0, 0))
        assert [folder.exists() for folder in folders] == [False, True, False, True, True, True, True, True]
        contents = {path.read_text() for path in Path(base, "objects").iterdir()}
        assert "print(1)" in contents and "a = 1" in contents
        assert "print(0)" not in contents and "print(2)" not in contents
        os.close(lock)
        write(repository, {"train.py": "print(8)"})
        Sync(read_tree(repository), base).to(LocalHost(), sys.executable)
        assert not folders[1].exists()
        assert not [path for path in Path(base).iterdir() if path.name.startswith(".draft")]

    def test_it_reaches_hosts_of_every_kind(self, repository: Path, host: Host) -> None:
        tree = read_tree(repository)
        base = f"/tmp/dlaunch-test-{os.getpid()}"
        folder = Sync(tree, base).to(host, sys.executable)
        assert host.run(["cat", f"{folder}/train.py"]).text == "print('hi')"
        host.run(["rm", "-rf", base])

"""`--sync`: the user's code on hosts that share no file system with us.

What git tracks or would track travels, each content once and only where it is not there yet, into a folder named by
the content of the whole tree: two jobs with different code never meet, and a repeated job sends nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from launcher.errors import InputError
from launcher.hosts.protocol import Host, HostError

CODE_FOLDER = "~/.cache/dlaunch/code"
MOST_BYTES = 512 << 20  # more is data, not code
TRANSFER_TIMEOUT_S = 600.0
REMOTE = Path(__file__).with_name("sync_remote.py")
# What is left out of a folder that is no git repository.
IGNORED = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".tox", ".nox", ".mypy_cache"}
    | {".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints", ".idea", ".vscode", ".DS_Store"}
)


@dataclass(frozen=True)
class Entry:
    """A file of the tree; `name` is the SHA-256 of its content, for a link of the text of its target."""

    path: str  # relative, with /
    kind: Literal["file", "program", "link"]
    name: str
    size: int


@dataclass(frozen=True)
class Tree:
    """All files below `root` that are to travel."""

    root: Path
    entries: tuple[Entry, ...]

    @property
    def digest(self) -> str:
        """The name of the tree: equal for equal paths, kinds and contents."""
        text = json.dumps([[entry.path, entry.kind, entry.name] for entry in self.entries])
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)


def code_root(folder: Path) -> Path:
    """The top of the git repository that holds `folder`; where there is none, `folder`."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    return Path(os.fsdecode(top.rstrip(b"\n"))) if top else folder.resolve()


def read_tree(root: Path) -> Tree:
    """The files to send: of a git repository those tracked and those neither tracked nor ignored, else nearly all.

    Raises InputError when they are too large to be code.
    """
    entries = tuple(_entry(root, path) for path in sorted(set(_paths(root))))
    tree = Tree(root, entries)
    if tree.size > MOST_BYTES:
        largest = max(entries, key=lambda entry: entry.size)
        message = f"{tree.size >> 20} MB of code, more than {MOST_BYTES >> 20}; the largest is {largest.path}"
        raise InputError(message, where=f"--sync {root}", help="name data in .gitignore, or put it on the hosts")
    return tree


class Sync:
    """Brings one tree to many hosts, from many threads; what several hosts lack alike is packed once."""

    def __init__(self, tree: Tree, base: str = CODE_FOLDER) -> None:
        self.tree = tree
        self._base = base
        self._lock = threading.Lock()
        self._packed: dict[frozenset[str], bytes] = {}

    def to(self, host: Host, python: str = "python3") -> str:
        """Make sure that `host` has the tree and return its folder there.

        `python` is any Python 3 of the host. Raises HostError; a transfer that breaks off leaves no part of a tree.
        """
        names = sorted({entry.name for entry in self.tree.entries})
        missing = self._ask(host, python, "missing", "\n".join(names).encode()).split()
        archive = self._pack(frozenset(missing))
        entries = [[entry.path, entry.kind, entry.name] for entry in self.tree.entries]
        header = json.dumps({"digest": self.tree.digest, "size": len(archive), "entries": entries})
        return self._ask(host, python, "build", header.encode() + b"\n" + archive).strip()

    def _ask(self, host: Host, python: str, command: str, input: bytes) -> str:
        argv = [python, "-c", REMOTE.read_text(), command, self._base]
        done = host.run(argv, input=input, timeout=TRANSFER_TIMEOUT_S)
        if done.status:
            reason = done.last_words or f"exit status {done.status}"
            raise HostError(host.name, f"--sync failed: {reason}", help=f"it needs {python} and room in {self._base}")
        return os.fsdecode(done.stdout)

    def _pack(self, names: frozenset[str]) -> bytes:
        with self._lock:
            if names not in self._packed:
                self._packed[names] = pack(self.tree, names)
            return self._packed[names]


def pack(tree: Tree, names: frozenset[str]) -> bytes:
    """A compressed archive of the contents `names`; raises InputError for a file that changed since it was hashed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=3) as archive:
        for entry in {entry.name: entry for entry in tree.entries if entry.name in names}.values():
            data = _content(tree.root / entry.path)
            if hashlib.sha256(data).hexdigest() != entry.name:
                raise InputError("changed while it was being sent", where=str(tree.root / entry.path), help="run again")
            member = tarfile.TarInfo(entry.name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _entry(root: Path, path: str) -> Entry:
    file = root / path
    data = _content(file)
    kind: Literal["file", "program", "link"] = "file"
    if file.is_symlink():
        kind = "link"
    elif os.access(file, os.X_OK):
        kind = "program"
    return Entry(path, kind, hashlib.sha256(data).hexdigest(), len(data))


def _content(file: Path) -> bytes:
    """What a file holds; of a symbolic link the text of its target."""
    return os.fsencode(file.readlink()) if file.is_symlink() else file.read_bytes()


def _paths(root: Path) -> Iterator[str]:
    """Relative paths of the files and links to send. Repositories inside of the repository count as folders of it."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        yield from _walk(root)
        return
    for name in filter(None, listed.split(b"\0")):
        path = os.fsdecode(name).rstrip("/")
        if (root / path / ".git").exists():
            yield from (f"{path}/{inner}" for inner in _paths(root / path))
        elif _is_content(root / path):  # a file that git tracks may be deleted
            yield path


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = [name for name in folders if name not in IGNORED and not Path(folder, name, "pyvenv.cfg").exists()]
        for name in (*files, *links):
            path = Path(folder, name)
            if name not in IGNORED and not name.endswith(".pyc") and _is_content(path):
                yield path.relative_to(root).as_posix()


def _is_content(path: Path) -> bool:
    """Sockets, pipes and devices do not travel."""
    return path.is_symlink() or path.is_file()


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git prints, None where `folder` is in no repository or there is no git."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None

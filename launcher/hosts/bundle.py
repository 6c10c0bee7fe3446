"""The node side as a folder named by its content, so that nothing is installed on a host and no version is mixed up."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import launcher
from launcher.errors import CannotActError
from launcher.hosts.protocol import Host

CODE = ("launcher/common", "launcher/agent", "doctor/node", "doctor/evidence", "workloads")
MAIN = b"import sys\nfrom launcher.agent.__main__ import main\nsys.exit(main())\n"
BUNDLES = ".cache/dlaunch"
UNPACK = """
import io, os, pathlib, shutil, sys, tarfile
target = pathlib.Path(sys.argv[1])
draft = target.with_name(f"{target.name}.{os.getpid()}")
draft.mkdir(mode=0o700, parents=True)
archive = tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read()))
archive.extractall(draft, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
try:
    draft.rename(target)
except OSError:
    shutil.rmtree(draft)
"""
LOOK = """
import os, pathlib, platform, sys
folder = pathlib.Path(sys.argv[1]).expanduser()
try:
    import psutil; has = 1
except ImportError:
    has = 0
print(folder, int(folder.is_dir()), has, sys.platform, platform.machine(), "%d.%d" % sys.version_info[:2])
"""


def _sources() -> Iterator[tuple[str, bytes]]:
    root = Path(launcher.__file__).parent.parent
    yield "__main__.py", MAIN
    for package in ("launcher", "doctor"):
        yield f"{package}/__init__.py", b""
    for folder in CODE:
        for path in sorted((root / folder).rglob("*.py")):
            yield str(path.relative_to(root)), path.read_bytes()


def _psutil() -> Iterator[tuple[str, bytes]]:
    """psutil of this Python: its compiled part works on the same platform under any Python 3 (stable ABI)."""
    import psutil

    folder = Path(psutil.__file__).parent
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".so") and "tests" not in path.parts:
            yield f"psutil/{path.relative_to(folder)}", path.read_bytes()


@cache
def _files(with_psutil: bool) -> dict[str, bytes]:
    return {**dict(_sources()), **(dict(_psutil()) if with_psutil else {})}


@cache
def bundle_name(with_psutil: bool) -> str:
    """Name of the folder that holds the present code, made from its content."""
    digest = hashlib.sha256()
    for name, data in _files(with_psutil).items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


@cache
def archive(with_psutil: bool) -> bytes:
    """The content as a gzipped tar."""
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        for name, data in _files(with_psutil).items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o600
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def bundle_names() -> tuple[str, str]:
    """Without psutil and with it."""
    return bundle_name(with_psutil=False), bundle_name(with_psutil=True)


def local_bundle() -> str:
    """The same on this machine, without a process of its own."""
    return shared_bundle(Path.home() / BUNDLES, with_psutil=False)


def shared_bundle(parent: Path, with_psutil: bool) -> str:
    """The same below `parent`, a folder that other hosts share."""
    name = bundle_name(with_psutil)
    folder = parent / name
    if not folder.is_dir():
        import tarfile

        draft = folder.with_name(f"{name}.{os.getpid()}")
        draft.mkdir(mode=0o700, parents=True)
        with tarfile.open(fileobj=io.BytesIO(archive(with_psutil))) as tar:
            tar.extractall(draft)
        with suppress(OSError):
            draft.rename(folder)
    return str(folder)


def put_bundle(host: Host, python: str) -> str:
    """Make sure that `host` holds the node side; returns its folder there, to be run as `python FOLDER COMMAND`.

    Raises CannotActError where `python` does not run there, or psutil is missing and ours does not fit.
    """
    name = bundle_name(with_psutil=False)
    folder, there, has_psutil, *system = _look(host, python, f"~/{BUNDLES}/{name}")
    if not has_psutil:
        if system[:2] != [sys.platform, platform.machine()]:
            raise CannotActError(f"{host.name}: no psutil under {python}", help=f"{python} -m pip install psutil")
        name = bundle_name(with_psutil=True)
        folder, there, *_ = _look(host, python, f"~/{BUNDLES}/{name}")
    if not there:
        done = host.run([python, "-c", UNPACK, folder], input=archive(with_psutil=not has_psutil))
        if done.status:
            raise CannotActError(f"{host.name}: cannot unpack our node side: {done.last_words}")
    return folder


def _look(host: Host, python: str, folder: str) -> tuple[str, bool, bool, str, str, str]:
    done = host.run([python, "-c", LOOK, folder])
    parts = done.text.strip().rsplit(" ", 5)
    if done.status or len(parts) != 6:
        message = done.last_words or f"{python} gave no answer"
        raise CannotActError(f"{host.name}: {message}", help="set `python` of the cluster in the inventory")
    return parts[0], parts[1] == "1", parts[2] == "1", parts[3], parts[4], parts[5]

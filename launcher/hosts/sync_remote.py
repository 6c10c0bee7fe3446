"""The far side of `sync`: runs on the host by `python -c`, so it imports the standard library alone.

    … missing BASE    names on standard input, answered by those that are not in the store
    … build BASE      a header line and an archive of the missing contents, answered by the folder of the tree

BASE holds `objects/NAME` (contents, named by their SHA-256) and one folder for each tree, named by its digest. Of the
trees the newest stay, and those on whose `DIGEST.lock` a job's agent holds a lock (launcher/agent/held_tree.py).
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path

KEPT_TREES = 5
SETTLED_S = 3600  # an object that is younger may be of a tree that is on its way


def missing(base: Path) -> None:
    for name in sys.stdin.read().split():
        try:
            os.utime(base / "objects" / name)  # young again: it is not pruned before `build` comes
        except FileNotFoundError:
            print(name)


def build(base: Path) -> None:
    """Nothing is written before the whole transfer is here, and a tree appears by one rename."""
    header = json.loads(sys.stdin.buffer.readline() or b"{}")
    archive = sys.stdin.buffer.read()
    if len(archive) != header.get("size"):
        sys.exit("the transfer broke off")
    store(base / "objects", archive)
    target = base / header["digest"]
    if not target.exists():
        assemble(base, header["entries"], target)
    (base / f"{header['digest']}.json").write_text(json.dumps([name for _, _, name in header["entries"]]))
    prune(base)
    print(target)


def store(objects: Path, archive: bytes) -> None:
    objects.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
        for member in members:
            content = members.extractfile(member)
            data = content.read() if content else b""
            if hashlib.sha256(data).hexdigest() != member.name:
                sys.exit(f"a file was damaged on its way: {member.name}")
            draft = objects / f".{member.name}.{os.getpid()}"
            draft.write_bytes(data)
            draft.replace(objects / member.name)


def assemble(base: Path, entries: list[list[str]], target: Path) -> None:
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=base))
    try:
        for path, kind, name in entries:
            place = draft / path
            place.parent.mkdir(parents=True, exist_ok=True)
            source = base / "objects" / name
            if kind == "link":
                place.symlink_to(os.fsdecode(source.read_bytes()))
            else:
                shutil.copyfile(source, place)
                place.chmod(0o755 if kind == "program" else 0o644)
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft)
        if not target.exists():  # else another sync of the same tree was quicker
            raise


def prune(base: Path) -> None:
    """Remove old trees that no job uses, and the contents that no tree has any more."""
    lists = sorted(base.glob("*.json"), key=lambda path: path.stat().st_mtime)
    removed = [remove_tree(path.with_suffix("")) for path in lists[:-KEPT_TREES]]
    if not any(removed):
        return
    kept = {name for path in base.glob("*.json") for name in json.loads(path.read_text())}
    for path in (base / "objects").iterdir():
        with suppress(FileNotFoundError):  # another sync prunes too
            if path.name not in kept and time.time() - path.stat().st_mtime > SETTLED_S:
                path.unlink()


def remove_tree(tree: Path) -> bool:
    """Whether nobody used it. It vanishes at once, by a rename, so that no sync takes it for a whole one."""
    with tree.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        with suppress(FileNotFoundError):
            draft = tree.rename(Path(tempfile.mkdtemp(prefix=".draft-", dir=tree.parent)) / "old")
            shutil.rmtree(draft.parent, ignore_errors=True)
        for suffix in (".json", ".lock"):
            tree.with_suffix(suffix).unlink(missing_ok=True)
    return True


if __name__ == "__main__":
    {"missing": missing, "build": build}[sys.argv[1]](Path(sys.argv[2]).expanduser())

"""The far side of `sync`: runs on the host by `python -c`, so it imports the standard library alone.

    … missing BASE    names on standard input, answered by those that are not in the store
    … build BASE      a header line and an archive of the missing contents, answered by the folder of the tree

BASE holds `objects/NAME` (contents, named by their SHA-256) and one folder for each tree, named by its digest.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path


def missing(base: Path) -> None:
    for name in sys.stdin.read().split():
        if not (base / "objects" / name).exists():
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


if __name__ == "__main__":
    {"missing": missing, "build": build}[sys.argv[1]](Path(sys.argv[2]).expanduser())

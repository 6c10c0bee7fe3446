"""Unpack a bundle (.tar, .tar.gz, .zip) that nobody vouches for: no path leaves the target, no bomb grows."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from doctor.evidence.source import Gap

GZIP = b"\x1f\x8b"
MAX_BYTES = 8 << 30
MAX_FILES = 200_000
MAX_RATIO = 2_000  # unpacked bytes per packed byte; logs reach a few hundred
SLACK_BYTES = 64 << 20


def is_archive(path: Path) -> bool:
    """By content: a zip, a tar, plain or compressed, or a gzipped file."""
    with path.open("rb") as stream:
        head = stream.read(512)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return zipfile.is_zipfile(path)
    if head.startswith(GZIP):
        return True
    compressed = head.startswith((b"BZh", b"\xfd7zXZ\x00"))
    return (compressed or head[257:262] == b"ustar") and tarfile.is_tarfile(path)


def unpack(archive: Path, target: Path) -> list[Gap]:
    """Unpack regular files of `archive` below `target`; what is refused comes back as gaps."""
    gaps: list[Gap] = []
    left = min(MAX_BYTES, SLACK_BYTES + MAX_RATIO * archive.stat().st_size)
    try:
        for count, (name, stream) in enumerate(_members(archive)):
            inside = _safe(name)
            if inside is None:
                gaps.append(Gap(archive.name, f"member {name!r} would leave the folder: refused"))
                continue
            left = _copy(stream, target / inside, left)
            if left < 0 or count >= MAX_FILES:
                gaps.append(Gap(archive.name, "unpacks to more than it may: the rest was refused"))
                break
    except (OSError, EOFError, ValueError, RuntimeError, tarfile.TarError, zipfile.BadZipFile) as error:
        gaps.append(Gap(archive.name, f"the archive is damaged after the part that was read: {error}"))
    return gaps


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """(name, stream) of each regular file."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as bundle:
            for entry in bundle.infolist():
                if not entry.is_dir():
                    with bundle.open(entry) as stream:
                        yield entry.filename, stream
        return
    if not tarfile.is_tarfile(archive):
        with gzip.open(archive) as plain:
            yield archive.name.removesuffix(".gz"), cast(IO[bytes], plain)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            stream_or_none = tar.extractfile(member) if member.isreg() else None
            if stream_or_none is not None:
                yield member.name, stream_or_none


def _safe(name: str) -> Path | None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        return None
    return Path(*path.parts)


def _copy(stream: IO[bytes], target: Path, left: int) -> int:
    """Copy at most `left` bytes; the bytes left after it, or -1 when there were more."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        while left > 0 and (piece := stream.read(min(1 << 20, left))):
            out.write(piece)
            left -= len(piece)
    return left if left > 0 or not stream.read(1) else -1


def pack(root: Path, archive: Path) -> None:
    """Write the files below `root` as a `.tar.gz`."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root, arcname=root.name)

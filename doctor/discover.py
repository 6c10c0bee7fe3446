"""Any directory, archive or file → EvidenceSet: files are classified by content and read in bounded memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from doctor.archives import is_archive, unpack
from doctor.evidence import EvidenceSet, Gap, Parser, Source, parsers
from launcher.errors import InputError

SURE = 1.0
MEMORY_LIMIT = 4 << 30  # address space that reading may add to a worker
POOL_BYTES = 4 << 20  # below this a pool costs more than it saves
MAX_WORKERS = 8


def discover(paths: Sequence[Path]) -> EvidenceSet:
    """Read all evidence below `paths`. Raises InputError for a path that does not exist."""
    with tempfile.TemporaryDirectory(prefix="ddoctor-") as scratch:
        gaps: list[Gap] = []
        sources = [source for path in paths for source in _sources(path, Path(scratch), gaps)]
        records, read_gaps = read_all(sources)
        return EvidenceSet(records, [*gaps, *read_gaps])


def read_all(sources: Sequence[Source]) -> tuple[list[object], list[Gap]]:
    """Records and gaps of all sources, in the order of names. Workers are separate processes with limited memory:
    a hostile file can at most end its worker."""
    ordered = sorted(sources, key=lambda source: source.name)
    records: list[object] = []
    gaps: list[Gap] = []
    for found, missed in _read_in_workers(ordered):
        records += found
        gaps += missed
    return records, gaps


def read_source(source: Source) -> tuple[list[object], list[Gap]]:
    """Records and gaps of one file."""
    records: list[object] = []
    try:
        chosen = classify(source.sample(), source.name)
    except OSError as error:
        return [], [Gap(source.name, f"cannot be read: {error.strerror}")]
    for parser in chosen:
        records += _parse(parser, source)
    if not chosen and source.size:
        source.note("not recognised as evidence", blinding=False)
    return records, source.gaps


def _parse(parser: Parser, source: Source) -> list[object]:
    """What the parser gives, up to where it fails; a failure becomes a gap."""
    records: list[object] = []
    try:
        for record in parser.parse(source):
            records.append(record)  # noqa: PERF402 - the records before a failure count
    except Exception as error:  # whatever a hostile file makes a parser do ends here
        source.note(f"{parser.name}: {error or type(error).__name__}")
    return records


def classify(sample: bytes, name: str) -> Sequence[Parser]:
    """The parsers that should read a file with this sample."""
    possible = []
    for parser in sorted(parsers(), key=lambda one: not (one.magic and sample.startswith(one.magic))):
        score = parser.sniff(sample, name)
        if score >= SURE:
            return [parser]
        if score > 0:
            possible.append(parser)
    return possible


def _sources(path: Path, scratch: Path, gaps: list[Gap]) -> Iterator[Source]:
    if not path.exists():
        raise InputError("no such file or directory", where=str(path), help="dlaunch ps lists the jobs")
    if path.is_file() and not is_archive(path):
        yield Source(path.name, path)
        return
    root = path
    if path.is_file():
        root = Path(tempfile.mkdtemp(dir=scratch))
        gaps += unpack(path, root)
    for file in _files(root):
        name = file.relative_to(root).as_posix()
        if is_archive(file):
            inner = Path(tempfile.mkdtemp(dir=scratch))
            gaps += unpack(file, inner)
            yield from (Source(f"{name}/{one.relative_to(inner).as_posix()}", one) for one in _files(inner))
        else:
            yield Source(name, file)


def _files(root: Path) -> Iterator[Path]:
    """Regular files below `root`; links that lead elsewhere, pipes and devices are left alone."""
    for folder, names, files in os.walk(root):
        names.sort()
        for file in sorted(files):
            path = Path(folder, file)
            if path.is_file() and not path.is_symlink():
                yield path


def _read_in_workers(sources: Sequence[Source]) -> Iterable[tuple[list[object], list[Gap]]]:
    pending = list(sources)
    big = sum(source.size for source in sources) > POOL_BYTES
    workers = min(os.cpu_count() or 1, MAX_WORKERS) if big else 1
    chunk = max(1, min(16, len(pending) // (4 * workers)))
    while pending:
        with ProcessPoolExecutor(workers, get_context("fork"), initializer=_prepare_worker) as pool:
            try:
                for result in pool.map(read_source, pending, chunksize=chunk):
                    yield result
                    pending.pop(0)
                return
            except BrokenProcessPool:
                pass
        workers = chunk = 1  # one file at a time tells which one ended its worker
        yield from _read_alone(pending)


def _read_alone(pending: list[Source]) -> Iterable[tuple[list[object], list[Gap]]]:
    source = pending.pop(0)
    with ProcessPoolExecutor(1, get_context("fork"), initializer=_prepare_worker) as pool:
        try:
            yield pool.submit(read_source, source).result()
        except BrokenProcessPool:
            yield [], [Gap(source.name, "reading it ended the reader: refused")]


def _prepare_worker() -> None:
    """A worker's memory is limited; it makes no cycles of garbage worth a collector that visits every entry."""
    import gc
    import resource

    gc.disable()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_LIMIT, resource.getrlimit(resource.RLIMIT_AS)[1]))

"""Look at a node's ranks: two samples of dumps, stacks and process state, and the tails of logs, as one archive."""

from __future__ import annotations

import io
import json
import socket
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from doctor.node import kernel
from doctor.node.files import tail
from doctor.node.processes import Watched, look, watched
from doctor.node.recorder import request_dumps
from doctor.node.reduce import reduce_dump
from doctor.node.stacks import dump_stacks
from launcher.common.paths import JobPaths

LOG_BYTES = 512_000
BESIDE = {".view.json": "view.json", ".stacks.json": "hook-stacks.json"}  # what the recorder's hook adds to a dump
LOGS = ("stdout", "stderr", "nccl.log", "progress.jsonl", "error.json")


@dataclass(frozen=True)
class Request:
    """What to look at. Without a job's `directory` only the processes in `pids` (and their RANK) are known."""

    directory: str = ""
    node_rank: int = 0
    attempt: int = 0
    ranks: Sequence[int] = ()
    pids: Sequence[int] = ()
    samples: int = 2  # 0: only files are read, the ranks ran elsewhere
    interval_s: float = 3.0
    patience_s: float = 8.0  # for a dump on demand
    full: bool = False  # whole dumps instead of reductions
    left_dumps: bool = True  # also those that ranks which have ended left
    native: bool = False
    py_spy: str = ""


@dataclass
class Archive:
    """Files by name, and what could not be had."""

    files: dict[str, bytes] = field(default_factory=dict)
    gaps: list[tuple[str, str]] = field(default_factory=list)

    def packed(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=3) as tar:
            for name, data in self.files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
                tar.addfile(entry, io.BytesIO(data))
        return buffer.getvalue()


def gather(request: Request) -> bytes:
    """All that this node shows of the job, as a .tar.gz."""
    archive = Archive()
    processes = watched(request.pids, _rank_pids(request), _progress(request))
    living: set[int | None] = set()
    for number in range(1, request.samples + 1):
        living = _sample(request, processes, number, archive)
        if number < request.samples:
            time.sleep(request.interval_s)
    if request.left_dumps and request.directory:
        _left_dumps(request, [rank for rank in request.ranks if rank not in living], archive)
    for name, data in _files(request):
        archive.files[name] = data
    node = f"nodes/{request.node_rank}"
    if request.samples:
        lines, why = kernel.lines()
        if lines:
            archive.files[f"{node}/kernel.log"] = lines
        else:
            archive.gaps.append((f"kernel lines of {socket.gethostname()}", why))
    archive.files[f"{node}/gaps.json"] = json.dumps({"dlaunch_gaps": archive.gaps}).encode()
    return archive.packed()


def _rank_pids(request: Request) -> dict[int, int]:
    """rank → pid, as the ranks' shims wrote them."""
    paths, pids = JobPaths(Path(request.directory)), {}
    for rank in request.ranks:
        with suppress(OSError, ValueError):
            pids[rank] = int(paths.pid(rank, request.attempt).read_text())
    return pids


def _progress(request: Request) -> dict[int, Path]:
    paths = JobPaths(Path(request.directory))
    return {rank: paths.progress(rank, request.attempt) for rank in request.ranks}


def _sample(request: Request, processes: Sequence[Watched], number: int, archive: Archive) -> set[int | None]:
    """One look: process states first (a stack dump stops a process for a moment), then dumps, then stacks.

    Returns the ranks that live.
    """
    node = f"nodes/{request.node_rank}/sample-{number}"
    states = look(processes)
    archive.files[f"{node}/processes.json"] = json.dumps({"dlaunch_processes": states}).encode()
    state_of = {one: state["state"] for one, state in zip(processes, states, strict=True)}
    living = [one for one in processes if state_of[one] != "gone"]
    if request.directory:
        awake = [one for one in living if state_of[one] != "stopped"]
        archive.gaps += [(f"dump of {one}", "the process is stopped") for one in living if one not in awake]
        _dumps(request, awake, number, archive)
    for one, stack, why in dump_stacks(living, request.py_spy, request.native):
        sample = f"{_folder(one)}/sample-{number}"
        if stack:
            archive.files[f"{sample}/stacks.json"] = stack
            archive.files.pop(f"{sample}/hook-stacks.json", None)  # the same in other words, a moment earlier
        elif f"{sample}/hook-stacks.json" not in archive.files:
            archive.gaps.append((f"stack of {one}", why))
    return {one.rank for one in living}


def _dumps(request: Request, living: Sequence[Watched], number: int, archive: Archive) -> None:
    paths = JobPaths(Path(request.directory))
    dumps = {one.rank: paths.dump(one.rank, request.attempt) for one in living if one.rank is not None}
    answered, refused = request_dumps(dumps, request.patience_s)
    archive.gaps += [(f"dump of rank {rank}", why) for rank, why in refused.items()]
    reduced = []
    for rank in answered:
        prefix = f"ranks/{rank}/sample-{number}"
        dump = _take(dumps[rank], prefix, archive)
        if dump and request.full:
            archive.files[f"{prefix}/fr.{rank}"] = dump
        elif dump:
            reduced.append(reduce_dump(dump, rank, f"{prefix}/fr.{rank}"))
    if reduced:
        archive.files[f"nodes/{request.node_rank}/sample-{number}/recorder.jsonl"] = b"\n".join(reduced)


def _left_dumps(request: Request, ended: Sequence[int], archive: Archive) -> None:
    """What the recorders of ranks that have ended left: at the watchdog's timeout, or in their last standstill."""
    paths = JobPaths(Path(request.directory))
    for rank in ended:
        dump = paths.dump(rank, request.attempt)
        moved = _written(paths.progress(rank, request.attempt)) or _written(paths.stdout(rank, request.attempt))
        if _written(dump) <= moved:
            continue  # there is none, or the rank has made steps after it
        prefix = f"ranks/{rank}/left"
        if data := _take(dump, prefix, archive):
            archive.files[f"{prefix}/recorder.jsonl"] = reduce_dump(data, rank, f"{prefix}/fr.{rank}")


def _written(path: Path) -> float:
    """When a file was written last; long ago where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _take(dump: Path, prefix: str, archive: Archive) -> bytes:
    """Put what the recorder's hook writes beside a dump into the archive; returns the dump itself, if there is one."""
    for suffix, name in BESIDE.items():
        with suppress(OSError):
            archive.files[f"{prefix}/{name}"] = dump.with_name(dump.name + suffix).read_bytes()
    try:
        return dump.read_bytes()
    except OSError:
        return b""


def _files(request: Request) -> Iterator[tuple[str, bytes]]:
    """Tails of the ranks' logs and the agent's documents."""
    if not request.directory:
        return
    paths = JobPaths(Path(request.directory))
    for rank in request.ranks:
        for name in LOGS:
            data = tail(paths.rank(rank, request.attempt) / name, LOG_BYTES)
            if data:
                yield f"ranks/{rank}/attempt-{request.attempt}/{name}", data
    for path in (paths.agent(request.node_rank), paths.torchrun_output(request.node_rank, request.attempt)):
        if data := tail(path, LOG_BYTES):
            yield f"nodes/{request.node_rank}/{path.name}", data


def _folder(one: Watched) -> str:
    return f"ranks/{one.rank}" if one.rank is not None else f"pids/{one.pid}"

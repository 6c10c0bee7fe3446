"""Flight recorder dumps on demand, in the rank's own process: gloo has no trigger of its own.

A raw thread sleeps in the open of a FIFO until somebody writes to it: until then it costs nothing and shows nowhere
(not in `threading.enumerate()`, no descriptor, not in forked children). It works while the main thread waits in a
collective, since that releases the interpreter's lock. Standard library only; torch is used only if it is loaded.

Per request it writes, by atomic rename, `fr.RANK` (the dump), `fr.RANK.stacks.json` (Python stacks, for where no tool
may attach) and at last `fr.RANK.view.json` (what the process knows of its groups), which tells that all are there.
"""

from __future__ import annotations

import _thread
import faulthandler
import json
import os
import sys
import time
from typing import Any

FIFO = "fr.trigger"
HOOK_SUFFIXES = ("", ".stacks.json", ".view.json")


def start() -> None:
    """Start the thread in a rank's main process; elsewhere (its children, other programs) do nothing."""
    directory = os.environ.get("DLAUNCH_RANK_DIR", "")
    rank = os.environ.get("RANK", "")
    if not directory or not rank or not _is_rank(directory):
        return
    if not faulthandler.is_enabled():
        faulthandler.enable()  # a crash in native code then leaves the Python stacks in the rank's stderr
    fifo = f"{directory}/{FIFO}"
    if not os.path.exists(fifo):  # noqa: PTH110 - pathlib would cost the user's start-up 10 ms
        os.mkfifo(fifo, 0o600)
    _thread.start_new_thread(_serve, (fifo, f"{directory}/fr.{rank}", int(rank)))


def _is_rank(directory: str) -> bool:
    """Whether this process is the one that the shim became: its children inherit the variables, not the pid."""
    try:
        with open(f"{directory}/pid") as file:  # noqa: PTH123
            return int(file.read()) == os.getpid()
    except (OSError, ValueError):
        return False


def _serve(fifo: str, prefix: str, rank: int) -> None:
    while os.path.exists(fifo):  # noqa: PTH110
        with open(fifo, "rb") as requests:  # noqa: PTH123 - sleeps here until somebody writes
            requests.read()
        answer(prefix, rank)


def answer(prefix: str, rank: int) -> None:
    """Write the dump, the stacks and the view of this process; a dump that fails is told in the view."""
    error = ""
    try:
        _write(f"{prefix}.stacks.json", json.dumps(_stacks(rank)).encode())
        dump = _dump()
        if dump:
            _write(prefix, dump)
        else:
            error = "torch.distributed is not loaded"
    except Exception as failure:
        error = str(failure)
    _write(f"{prefix}.view.json", json.dumps(_view(rank, error)).encode())


def _dump() -> bytes:
    """The recorder's content, of NCCL where that has any; empty when torch.distributed is not loaded."""
    module = sys.modules.get("torch._C._distributed_c10d")
    for name in ("_dump_nccl_trace", "_dump_fr_trace"):
        dump = getattr(module, name, None)
        data: bytes = dump(True, True, False) if dump else b""
        if b"record_id" in data or (data and name == "_dump_fr_trace"):
            return data
    return b""


def _view(rank: int, error: str) -> dict[str, Any]:
    return {
        "dlaunch_process_view": 1,
        "rank": rank,
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "time": time.time(),
        "error": error,
        "groups": _groups(),
    }


def _groups() -> dict[str, dict[str, Any]]:
    """name → description and members (global ranks) of each process group that this process belongs to."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    world: Any = getattr(c10d, "_world", None)
    groups = {}
    for group, name in dict(getattr(world, "pg_names", {})).items():
        ranks = sorted(world.pg_group_ranks.get(group, ()))
        if ranks:
            groups[str(name)] = {"desc": str(getattr(group, "group_desc", "")), "ranks": ranks}
    return groups


def _stacks(rank: int) -> dict[str, Any]:
    """All Python threads in the form of py-spy's JSON, this one left out."""
    threading: Any = sys.modules.get("threading")
    known = {thread.ident: thread for thread in getattr(threading, "_active", {}).copy().values()}
    main = getattr(threading, "_main_thread", None)
    threads = []
    for ident, frame in sys._current_frames().items():
        if ident == _thread.get_ident():
            continue
        thread = known.get(ident)
        threads.append(
            {
                "pid": os.getpid(),
                "thread_name": "MainThread" if thread is main else getattr(thread, "name", ""),
                "os_thread_id": getattr(thread, "native_id", None),
                "frames": _frames(frame),
            }
        )
    return {"dlaunch_stack": 1, "rank": rank, "pid": os.getpid(), "threads": threads}


def _frames(frame: Any) -> list[dict[str, Any]]:
    frames = []
    while frame is not None:
        frames.append({"name": frame.f_code.co_name, "filename": frame.f_code.co_filename, "line": frame.f_lineno})
        frame = frame.f_back
    return frames


def _write(path: str, data: bytes) -> None:
    draft = f"{path}.new"
    with open(draft, "wb") as file:  # noqa: PTH123
        file.write(data)
    os.replace(draft, path)  # noqa: PTH105

"""Ranks for tests: forked from a server that has torch imported, so that eight are there in a fraction of a second.

`on_standing_ranks` keeps a set of them in one process group, where a second run finds torch's caches of sharding rules
filled. `run_ranks` starts them for one call: for what makes a group of its own, or breaks it.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["tests.workloads.preloaded"])


class RankFailed(Exception):
    """A rank raised (its traceback is the text), died or did not answer in time."""


class Ranks:
    """`size` processes with torchrun's variables set, which call what they are told until they are closed."""

    def __init__(self, size: int) -> None:
        self.calls = 0
        self._store = new_store()
        self._processes = []
        self._connections: list[Connection] = []
        for rank in range(size):
            ours, theirs = _server.Pipe()
            process = _server.Process(target=_serve, args=(theirs, rank, size, self._store.port))
            process.start()
            theirs.close()
            self._processes.append(process)
            self._connections.append(ours)

    def call(self, function: Callable[..., T], *args: Any, deadline: float = 120.0) -> list[T]:
        """Call the module-level `function(*args)` on every rank; results by rank.

        Raises RankFailed for the first rank that fails; then all can only be closed, since others may wait for it.
        """
        self.calls += 1
        task = pickle.dumps((function, args))
        for connection in self._connections:
            connection.send_bytes(task)
        results: dict[int, Any] = {}
        end = time.monotonic() + deadline
        while len(results) < len(self._connections):
            waiting = [connection for rank, connection in enumerate(self._connections) if rank not in results]
            ready = wait(waiting, end - time.monotonic())
            if not ready:
                raise RankFailed(
                    f"no answer in {deadline} s from ranks {sorted(set(range(len(self._connections))) - set(results))}"
                )
            results |= {rank: _answer(self._connections[rank], rank) for rank in map(self._rank_of, ready)}
        return [results[rank] for rank in range(len(results))]

    def _rank_of(self, connection: Any) -> int:
        return self._connections.index(connection)

    def close(self) -> None:
        """End all ranks; those that do not leave by themselves are killed."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(0.5)
            process.kill()
            process.join()
            process.close()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


# The groups of each call's meshes stay, since torch's caches name them, and each has a thread that polls.
MOST_CALLS = 8
_standing: dict[int, Ranks] = {}


def run_ranks(function: Callable[..., T], world_size: int, *args: Any, deadline: float = 120.0) -> list[T]:
    """`Ranks.call` on ranks of their own, all of which are gone afterwards."""
    with Ranks(world_size) as ranks:
        return ranks.call(function, *args, deadline=deadline)


def on_standing_ranks(function: Callable[..., T], world_size: int, *args: Any, deadline: float = 120.0) -> list[T]:
    """`Ranks.call` on ranks that are kept for the next calls; they are in one process group, which `train` finds."""
    if world_size in _standing and _standing[world_size].calls > MOST_CALLS:
        _standing.pop(world_size).close()
    if world_size not in _standing:
        _standing[world_size] = Ranks(world_size)
        _standing[world_size].call(_join)
    try:
        return _standing[world_size].call(function, *args, deadline=deadline)
    except BaseException:
        _standing.pop(world_size).close()
        raise


def close_standing() -> None:
    while _standing:
        _standing.popitem()[1].close()


def new_store() -> Any:
    """A store for one process group, whose `.port` the ranks need as MASTER_PORT; it lives as long as the object."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # not in its stub

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def _join() -> None:
    from torch import distributed as dist

    dist.init_process_group("gloo")


def _answer(connection: Connection, rank: int) -> Any:
    try:
        ok, result = pickle.loads(connection.recv_bytes())
    except (EOFError, ConnectionResetError):
        raise RankFailed(f"rank {rank} died") from None
    if not ok:
        raise RankFailed(f"rank {rank}: {result}")
    return result


def _serve(connection: Connection, rank: int, world_size: int, port: int) -> None:
    import torch

    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",  # the store is the test's: no port to race for
        OMP_NUM_THREADS="1",
    )
    torch.set_num_threads(1)
    while True:
        try:
            function, args = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            answer = (True, function(*args))
        except BaseException:
            answer = (False, traceback.format_exc())
        connection.send_bytes(pickle.dumps(answer))

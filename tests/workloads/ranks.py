"""Ranks for tests: forked from a server that has torch imported, so that eight are there in a fraction of a second."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

T = TypeVar("T")
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    ["torch", "torch.distributed.checkpoint", "workloads.ddp", "workloads.zero", "workloads.nd"]
)


class RankFailed(Exception):
    """A rank raised (its traceback is the text), died or did not answer in time."""


def run_ranks(function: Callable[..., T], world_size: int, *args: Any, deadline: float = 120.0) -> list[T]:
    """Call the module-level `function(*args)` on `world_size` ranks with torchrun's variables set; results by rank.

    Raises RankFailed for the first rank that fails; all ranks are gone afterwards.
    """
    store = new_store()
    receivers: dict[Connection, int] = {}
    processes = []
    for rank in range(world_size):
        receiver, sender = _server.Pipe(duplex=False)
        process = _server.Process(target=_rank, args=(sender, rank, world_size, store.port, function, args))
        process.start()
        sender.close()
        receivers[receiver] = rank
        processes.append(process)
    try:
        return _collect(receivers, world_size, deadline)
    finally:
        for process in processes:
            process.join(0.5)
            process.kill()
            process.join()


def new_store() -> Any:
    """A store for one process group, whose `.port` the ranks need as MASTER_PORT; it lives as long as the object."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # not in its stub

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def _collect(receivers: dict[Connection, int], world_size: int, deadline: float) -> list[Any]:
    results: dict[int, Any] = {}
    end = time.monotonic() + deadline
    while len(results) < world_size:
        ready = wait(
            [connection for connection, rank in receivers.items() if rank not in results], end - time.monotonic()
        )
        if not ready:
            raise RankFailed(f"no answer in {deadline} s from ranks {sorted(set(range(world_size)) - set(results))}")
        for connection in ready:
            assert isinstance(connection, Connection)
            rank = receivers[connection]
            try:
                ok, result = pickle.loads(connection.recv_bytes())
            except EOFError:
                raise RankFailed(f"rank {rank} died") from None
            if not ok:
                raise RankFailed(f"rank {rank}: {result}")
            results[rank] = result
    return [results[rank] for rank in range(world_size)]


def _rank(
    sender: Connection, rank: int, world_size: int, port: int, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
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
    try:
        answer = (True, function(*args))
    except BaseException:
        answer = (False, traceback.format_exc())
    sender.send_bytes(pickle.dumps(answer))

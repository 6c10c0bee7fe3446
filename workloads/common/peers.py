"""No rank waits for a peer that has failed.

A rank blocked in a send or receive learns of a peer's exception only at the timeout (NCCL), or never if the peer still
lives. So whoever fails says so in the job's store, and a thread on every rank reads it and ends the rank.
"""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

KEY = "workload_failed"
GRACE = 3.0  # seconds for a rank to fail by itself, with its own traceback, before it is ended


class FailTogether:
    """`with` it around what may block on peers; `who` is this rank's name in the others' messages."""

    def __init__(self, who: str, poll: float = 1.0, grace: float = GRACE) -> None:
        self.who, self._poll, self._grace = who, poll, grace
        self._store = c10d._get_default_store()
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="peer-watch", daemon=True).start()

    def close(self) -> None:
        """Stop watching; before the process group goes."""
        self._over.set()

    def __enter__(self) -> FailTogether:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            return
        self.close()
        if not self._store.check([KEY]):
            cause = f"{self.who} failed: {type(error).__name__}: {error}"
            self._store.set(KEY, cause)
            print(cause, file=sys.stderr, flush=True)

    def _watch(self) -> None:
        while not self._over.wait(self._poll):
            try:
                failed = self._store.check([KEY])
            except dist.DistError:  # the store went with the rank that kept it
                return
            if failed:
                self._leave(self._store.get(KEY).decode())

    def _leave(self, cause: str) -> None:
        if not self._over.wait(self._grace):
            print(f"{self.who} leaves, for {cause}", file=sys.stderr, flush=True)
            os._exit(1)  # the main thread is blocked in native code: no exception reaches it

"""Network namespaces for the labs: making them, entering them, and removing all that lives in them. Needs root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

NAMED = Path("/run/netns")
CLONE_NEWNET = 0x40000000


def ip_batch(lines: Sequence[str], namespace: str | None = None) -> None:
    """Many `ip` commands in one process; raises RuntimeError with what ip said."""
    where = ["-n", namespace] if namespace else []
    done = subprocess.run(["ip", *where, "-batch", "-"], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip -batch in {namespace}: {done.stderr.strip()}")


def exists(namespace: str) -> bool:
    return (NAMED / namespace).exists()


def processes(namespace: str) -> list[int]:
    """Every process whose network is `namespace`, whatever its pid namespace; pids as seen from here."""
    identity = (NAMED / namespace).stat().st_ino
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "ns/net").stat().st_ino == identity:
                    found.append(int(entry.name))
    return found


def signal_all(namespace: str, number: signal.Signals) -> None:
    for pid in processes(namespace):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_all(namespace: str) -> None:
    """Kill everything that lives in `namespace` and wait until nothing is left."""

    def none_left() -> bool:
        signal_all(namespace, signal.SIGKILL)
        return not processes(namespace)

    wait_until(none_left, f"processes in {namespace} to end")


def remove(namespace: str) -> None:
    """Kill everything that lives in `namespace`, then delete it; nothing happens where there is none."""
    if exists(namespace):
        kill_all(namespace)
        ip_batch([f"netns delete {namespace}"])


def is_init(pid: int) -> bool:
    """Whether `pid` is process 1 of a pid namespace of its own."""
    status = Path(f"/proc/{pid}/status").read_text()
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
    return len(numbers) > 1 and numbers[-1] == "1"


@contextlib.contextmanager
def entered(namespace: str) -> Iterator[None]:
    """The calling thread, and the threads and processes it starts, use the network of `namespace`."""
    with Path("/proc/thread-self/ns/net").open() as back:
        with (NAMED / namespace).open() as there:
            _set_network(there.fileno())
        try:
            yield
        finally:
            _set_network(back.fileno())


def _set_network(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 30.0, pause: float = 0.02) -> None:
    """Raises TimeoutError naming `what` when `condition` has not come true within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(pause)

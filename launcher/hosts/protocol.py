"""The one protocol by which everything reaches a host: local, SSH and Slurm implement it alike.

All paths on a host are absolute strings; all data is bytes. Commands are argv lists, quoted in one place (`quote`).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from launcher.errors import CannotActError

T = TypeVar("T")
DEFAULT_TIMEOUT_S = 30.0


class HostError(CannotActError):
    """A host could not be reached, was lost, or refused; `host` is its name."""

    def __init__(self, host: str, message: str, *, help: str = "") -> None:
        super().__init__(f"{host}: {message}", help=help)
        self.host = host


@dataclass(frozen=True)
class Completed:
    """How a command on a host ended."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")


class Host(Protocol):
    """A machine that can run commands and hold files."""

    name: str

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Completed:
        """Run `argv` to its end, without a login shell. Raises HostError when the host is lost or time is up."""

    def spawn(self, argv: Sequence[str], *, input: bytes = b"", env: Mapping[str, str] | None = None, log: str) -> None:
        """Start `argv` detached in a session of its own: it outlives this connection. Its output goes to file `log`.

        `input` arrives on its standard input without touching a disk (secrets travel this way).
        """

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """The bytes of a file from `offset`; raises FileNotFoundError."""

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file by atomic rename, its folders made (0700)."""

    def stream(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """Run `argv` and yield its output as it comes, until it ends; raises HostError when the host is lost."""

    def close(self) -> None:
        """Give back every descriptor, thread and process."""


def quote(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """`argv` as one POSIX shell line with `env K=V` in front: the only place where we quote."""
    assignments = [f"{key}={value}" for key, value in (env or {}).items()]
    return shlex.join(["env", *assignments, *argv] if assignments else list(argv))


def on_all(hosts: Sequence[Host], action: Callable[[Host], T], workers: int = 16) -> dict[str, T | HostError]:
    """Do `action` on all hosts at once; a host that fails gives its HostError as the answer, and delays no other."""
    from concurrent.futures import ThreadPoolExecutor

    def attempt(host: Host) -> T | HostError:
        try:
            return action(host)
        except HostError as error:
            return error

    if not hosts:
        return {}
    with ThreadPoolExecutor(min(workers, len(hosts)), thread_name_prefix="hosts") as pool:
        return dict(zip((host.name for host in hosts), pool.map(attempt, hosts), strict=True))

"""The one protocol by which everything reaches a host: local, SSH and Slurm implement it alike.

All paths on a host are absolute strings; all data is bytes. Commands are argv lists, quoted in one place (`quote`).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from launcher.errors import CannotActError

T = TypeVar("T")
N = TypeVar("N", bound="Named")
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

    @property
    def last_words(self) -> str:
        """The last line that it wrote to stderr: mostly the reason why it failed."""
        return self.stderr.decode(errors="replace").strip().rpartition("\n")[2]


class Named(Protocol):
    """A host, or the address of one that is not connected yet."""

    @property
    def name(self) -> str: ...


class Host(Named, Protocol):
    """A machine that can run commands and hold files."""

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Completed:
        """Run `argv` to its end, `env` added to the host's own. Raises HostError when the host is lost or time is up.

        The status is the shell's: 127 for a missing program, 128 + n for a death by signal n.
        """

    def spawn(self, argv: Sequence[str], *, input: bytes = b"", log: str) -> None:
        """Start `argv` detached in a session of its own: it outlives this connection. Its output goes to file `log`.

        `input` arrives on its standard input without touching a disk: secrets travel this way, never in `argv`, which
        every user of the host can see. Raises HostError when there is no such program.
        """

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """The bytes of a file from `offset`; raises FileNotFoundError."""

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file by atomic rename, its folders made (0700)."""

    def stream(self, argv: Sequence[str]) -> Iterator[bytes]:
        """Run `argv` and yield its standard output as it comes, until it ends; raises HostError when the host is lost.

        Closing the iterator ends the command.
        """

    def close(self) -> None:
        """Give back every descriptor, thread and process."""


def with_env(argv: Sequence[str], env: Mapping[str, str] | None) -> list[str]:
    """`argv` behind `env K=V …`, where there is anything to set."""
    return ["env", *(f"{name}={value}" for name, value in env.items()), *argv] if env else list(argv)


def quote(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """`argv` as one POSIX shell line with `env K=V` in front: the only place where we quote."""
    return shlex.join(with_env(argv, env))


@dataclass(frozen=True)
class Answers(Generic[T]):
    """What hosts gave, and why the others gave nothing: by name, in the order in which they were asked."""

    good: dict[str, T]
    failed: dict[str, CannotActError]

    @property
    def reasons(self) -> dict[str, str]:
        """Why each of the others failed, in words."""
        return {name: error.message for name, error in self.failed.items()}

    def whole(self) -> dict[str, T]:
        """The answers of all hosts. Raises CannotActError naming every one that failed."""
        if self.failed:
            first = next(iter(self.failed.values()))
            raise CannotActError("; ".join(self.reasons.values()), help=first.help or "dlaunch nodes")
        return self.good


def on_all(hosts: Sequence[N], action: Callable[[N], T], workers: int = 16) -> Answers[T]:
    """Do `action` on all hosts at once; a host on which it raises CannotActError delays and hides no other."""
    from concurrent.futures import ThreadPoolExecutor

    answers = Answers[T]({}, {})

    def attempt(host: N) -> T | CannotActError:
        try:
            return action(host)
        except CannotActError as error:
            return error

    if not hosts:
        return answers
    with ThreadPoolExecutor(min(workers, len(hosts)), thread_name_prefix="hosts") as pool:
        for host, answer in zip(hosts, pool.map(attempt, hosts), strict=True):
            if isinstance(answer, CannotActError):
                answers.failed[host.name] = answer
            else:
                answers.good[host.name] = answer
    return answers

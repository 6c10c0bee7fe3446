"""LocalHost: this machine as a host."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from launcher.common.paths import make_private
from launcher.hosts.protocol import DEFAULT_TIMEOUT_S, Completed, HostError
from launcher.hosts.scripts import spawn_script

CHUNK = 1 << 16
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # the shell's exit statuses, which a remote host gives too


class LocalHost:
    """This machine; `name` is what it is called in the cluster (several simulated nodes may be one machine)."""

    def __init__(self, name: str = "localhost") -> None:
        self.name = name

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Completed:
        try:
            process = self._start(argv, env, subprocess.PIPE, subprocess.PIPE)
        except OSError as error:
            status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            return Completed(status, b"", f"{argv[0]}: {error.strerror}\n".encode())
        with process, _killed_on_error(process):
            try:
                stdout, stderr = process.communicate(input, timeout)
            except subprocess.TimeoutExpired as error:
                raise HostError(self.name, f"{argv[0]} did not end within {timeout:g} s") from error
        return Completed(_shell_status(process.returncode), stdout, stderr)

    def spawn(self, argv: Sequence[str], *, input: bytes = b"", log: str) -> None:
        done = self.run(["/bin/sh", "-c", spawn_script(argv, log)], input=input)
        if done.status:
            raise HostError(self.name, f"could not start {argv[0]}: {done.stderr.decode(errors='replace').strip()}")

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        try:
            with Path(path).open("rb") as file:
                file.seek(offset)
                return file.read(-1 if limit is None else limit)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise HostError(self.name, f"cannot read {path}: {error.strerror}") from error

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        target = Path(path)
        draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
        try:
            make_private(target.parent)
            with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(data)
            draft.chmod(mode)
            draft.replace(target)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise HostError(self.name, f"cannot write {path}: {error.strerror}") from error

    def stream(self, argv: Sequence[str]) -> Iterator[bytes]:
        try:
            process = self._start(argv, None, subprocess.DEVNULL, subprocess.DEVNULL)
        except OSError as error:
            raise HostError(self.name, f"{argv[0]}: {error.strerror}") from error
        with process, _killed_on_error(process):
            assert process.stdout is not None
            while chunk := os.read(process.stdout.fileno(), CHUNK):
                yield chunk

    def close(self) -> None:
        """There is nothing to give back."""

    @staticmethod
    def _start(argv: Sequence[str], env: Mapping[str, str] | None, stdin: int, stderr: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )


@contextlib.contextmanager
def _killed_on_error(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever leaves the block by an exception, or by closing the generator, ends the process and its group."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise


def _shell_status(returncode: int) -> int:
    """A death by signal n as the shell says it: 128 + n."""
    return returncode if returncode >= 0 else 128 - returncode

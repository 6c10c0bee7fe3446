"""Commands over an open SSH connection: both outputs at once as raw bytes, and a lost host noticed.

A login shell may print before our command runs (`.bashrc`): the command announces itself with a token on both outputs
and what came before is dropped. For the same reason files travel through commands and not through SFTP, which such a
shell breaks wherever sshd starts an external sftp-server.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
import threading
import time
from collections.abc import Iterator
from typing import Literal

from paramiko.channel import Channel
from paramiko.transport import Transport

from launcher.hosts.protocol import HostError
from launcher.hosts.ssh_errors import SSH_ERRORS

CHUNK = 1 << 18
PROBE_AFTER_S = 3.0  # of silence
PROBE_TIMEOUT_S = 7.0
SESSIONS = 8  # of the 10 that sshd allows by default (MaxSessions): one is for probes, one to end a command
SESSION_PATIENCE_S = 30.0
INPUT_PAUSE_S = 0.02  # between looks at the window while it is full
BROKEN = "the connection broke"

Output = tuple[Literal["out", "err"], bytes]


class Link:
    """A connection's transport, watched: whoever waits on it calls `check`, which raises HostError once it is lost."""

    def __init__(self, name: str, transport: Transport) -> None:
        self.name = name
        self._transport = transport
        self._sessions = threading.BoundedSemaphore(SESSIONS)
        self._probing = threading.Lock()
        self._heard = time.monotonic()

    @contextlib.contextmanager
    def session(self) -> Iterator[Channel]:
        """A channel for one command. Raises HostError when the host is lost or has no session left."""
        if not self._sessions.acquire(timeout=SESSION_PATIENCE_S):
            raise HostError(self.name, f"{SESSIONS} commands run on it at once", help="wait for one of them to end")
        try:
            with contextlib.closing(self._open_patiently()) as channel:
                yield channel
        finally:
            self._sessions.release()

    def heard(self) -> None:
        """Something came from the host just now."""
        self._heard = time.monotonic()

    def check(self) -> None:
        """Make sure that the host lives: after some silence it must answer a request for a session."""
        with self._probing:
            if not self._transport.is_active():
                raise self.lost(BROKEN)
            if time.monotonic() - self._heard > PROBE_AFTER_S:
                self.probe()

    def probe(self) -> None:
        """Ask for a session; a refusal is a sign of life too."""
        if channel := self._request(PROBE_TIMEOUT_S):
            channel.close()
        self.heard()

    def execute(self, channel: Channel, line: str) -> None:
        """Start `line` in the user's login shell. Raises HostError."""
        watchdog = threading.Timer(PROBE_TIMEOUT_S, self.break_off)  # paramiko waits for the reply without end
        watchdog.start()
        try:
            channel.exec_command(line.encode(errors="surrogateescape"))
        except SSH_ERRORS as error:
            raise self.lost(str(error) or BROKEN) from error
        finally:
            watchdog.cancel()

    def kill(self, group: int) -> None:
        """Kill a process group on the host, if the host can still be told."""
        with contextlib.suppress(HostError):
            if channel := self._request(PROBE_TIMEOUT_S):
                with contextlib.closing(channel):
                    self.execute(channel, f"kill -KILL -- -{group}")
                    channel.status_event.wait(PROBE_TIMEOUT_S)

    def break_off(self) -> None:
        """Give the connection up: every thread that waits on it comes back."""
        self._transport.close()

    def lost(self, reason: str) -> HostError:
        return HostError(self.name, f"lost: {reason}", help="check that the host is up and its network")

    def _open_patiently(self) -> Channel:
        deadline = time.monotonic() + SESSION_PATIENCE_S
        while not (channel := self._request(PROBE_AFTER_S + PROBE_TIMEOUT_S)):
            if time.monotonic() > deadline:
                raise HostError(
                    self.name, "its sshd refuses another session", help="raise MaxSessions in its sshd_config"
                )
            time.sleep(0.1)
        return channel

    def _request(self, timeout: float) -> Channel | None:
        """A new session, None where the host refuses (MaxSessions); raises HostError when it does not answer."""
        started = time.monotonic()
        try:
            return self._transport.open_session(timeout=timeout)
        except SSH_ERRORS as error:
            alive = self._transport.is_active()
            if alive and time.monotonic() - started < timeout:
                return None
            self.break_off()
            reason = f"no answer for {time.monotonic() - self._heard:.0f} s" if alive else BROKEN
            raise self.lost(reason) from error


class RemoteCommand:
    """One command: `output()` runs it to its end, after which `status` is its exit status."""

    def __init__(self, link: Link, script: str, input: bytes = b"", timeout: float | None = None) -> None:
        self.status = -1
        self._link = link
        self._script = script
        self._input = memoryview(input)
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._token = secrets.token_hex(8).encode()
        self._group: int | None = None  # the command's process group on the host, once it has announced itself

    def output(self) -> Iterator[Output]:
        """Both outputs, in the order of arrival. Left early, it ends the command on the host.

        Raises HostError when the host is lost, TimeoutError when the time is up.
        """
        with self._link.session() as channel:
            self._start(channel)
            try:
                yield from self._after_announcement(self._raw(channel))
            except BaseException:
                if self._group is not None:
                    self._link.kill(self._group)
                raise
            self.status = channel.recv_exit_status()
        if self.status == -1:
            self._link.probe()
            raise HostError(self._link.name, "the command was killed with its shell")

    def _start(self, channel: Channel) -> None:
        token = self._token.decode()
        announce = f"printf '%s %s\\n' {token} $$; printf '%s\\n' {token} >&2"
        # Without the last exit the shell may become the command, and a death by signal would have no status.
        self._link.execute(channel, f"exec /bin/sh -c {shlex.quote(f'{announce}; {self._script}; exit $?')}")

    def _after_announcement(self, raw: Iterator[Output]) -> Iterator[Output]:
        """Drop what each output said up to the line that has our token; that of "out" names the process group."""
        noise: dict[str, bytes] = {"out": b"", "err": b""}
        for kind, data in raw:
            if kind not in noise:
                yield kind, data
                continue
            noise[kind] += data
            _, _, line = noise[kind].partition(self._token)
            number, newline, data = line.partition(b"\n")
            if not newline:
                continue
            del noise[kind]
            if kind == "out":
                self._group = int(number)
            if data:
                yield kind, data
        if "out" in noise:
            said = (noise["out"] + noise.get("err", b"")).decode(errors="replace").strip()
            raise HostError(self._link.name, f"its login shell did not run our command: {said[-300:] or 'no word'}")

    def _raw(self, channel: Channel) -> Iterator[Output]:
        activity = threading.Event()
        channel.in_buffer.set_event(activity)
        channel.in_stderr_buffer.set_event(activity)
        while True:
            ended = channel.closed or (channel.eof_received and channel.exit_status_ready())
            self._feed(channel)
            if channel.recv_ready():
                yield "out", channel.recv(CHUNK)
            elif channel.recv_stderr_ready():
                yield "err", channel.recv_stderr(CHUNK)
            elif ended:
                return
            else:
                self._wait(channel, activity)
                continue
            self._link.heard()

    def _wait(self, channel: Channel, activity: threading.Event) -> None:
        """Wait for output or the end, but no longer than until the next thing to do."""
        left = PROBE_AFTER_S if self._deadline is None else min(PROBE_AFTER_S, self._deadline - time.monotonic())
        if left <= 0:
            raise TimeoutError
        event = channel.status_event if channel.eof_received else activity
        if not event.wait(min(left, INPUT_PAUSE_S) if self._input else left):
            self._link.check()

    def _feed(self, channel: Channel) -> None:
        """Send as much input as the window takes, and its end."""
        with contextlib.suppress(*SSH_ERRORS):  # the command has ended without reading it
            while self._input and channel.send_ready():
                self._input = self._input[channel.send(bytes(self._input[:CHUNK])) :]
            if not self._input and not channel.eof_sent:
                channel.shutdown_write()

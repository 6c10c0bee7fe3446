"""What the protocol promises, on every kind of host."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.hosts.protocol import Completed, Host, HostError
from tests.lab.namespaces import wait_until

ARGUMENT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
PRINT_ARGUMENTS = ["/bin/sh", "-c", r'for a; do printf "%s\0" "$a"; done', "sh"]


@pytest.fixture
def folder(host: Host) -> Iterator[str]:
    """A folder of our own on the host, not made yet."""
    path = f"/tmp/dlaunch-test-{uuid.uuid4().hex}"
    yield path
    host.run(["rm", "-rf", path])


def shell(host: Host, script: str, timeout: float = 30) -> Completed:
    return host.run(["/bin/sh", "-c", script], timeout=timeout)


class TestRun:
    def test_gives_status_and_both_outputs_apart(self, host: Host) -> None:
        assert shell(host, "echo out; echo err >&2; exit 3") == Completed(3, b"out\n", b"err\n")

    def test_gives_input_and_its_end(self, host: Host) -> None:
        data = bytes(range(256)) * 8192
        assert host.run(["sha256sum"], input=data).text.split()[0] == hashlib.sha256(data).hexdigest()

    def test_does_not_mind_a_program_that_reads_no_input(self, host: Host) -> None:
        assert host.run(["true"], input=bytes(4 << 20)).status == 0

    def test_input_and_output_flow_at_once(self, host: Host) -> None:
        data = bytes(8 << 20)
        assert host.run(["cat"], input=data).stdout == data

    def test_large_outputs_on_both_sides_do_not_lock(self, host: Host) -> None:
        done = shell(host, "head -c 5000000 /dev/zero >&2; head -c 5000000 /dev/zero")
        assert (len(done.stdout), len(done.stderr)) == (5_000_000, 5_000_000)

    def test_bytes_that_are_no_utf8_arrive_as_they_are(self, host: Host) -> None:
        assert shell(host, r"printf '\377\376\200 \303'").stdout == b"\xff\xfe\x80 \xc3"

    def test_environment_is_added(self, host: Host) -> None:
        done = host.run(["/bin/sh", "-c", 'echo "$GREETING $PATH"'], env={"GREETING": "it's $HOME\n`x`"})
        assert done.text.startswith("it's $HOME\n`x` /")

    def test_a_missing_program_is_status_127_with_its_name(self, host: Host) -> None:
        done = host.run(["no-such-program"])
        assert done.status == 127
        assert b"no-such-program" in done.stderr

    def test_a_death_by_signal_is_128_and_its_number(self, host: Host) -> None:
        assert shell(host, "kill -9 $$").status == 137

    def test_time_that_is_up_ends_the_command_on_the_host(self, host: Host) -> None:
        mark = f"31{uuid.uuid4().int % 10**7}"
        with pytest.raises(HostError, match="did not end within 1 s"):
            shell(host, f"sleep {mark} & sleep {mark}", timeout=1)
        wait_until(lambda: shell(host, f"pgrep -fx 'sleep {mark}'").status == 1, "the command to be gone")

    @given(arguments=st.lists(ARGUMENT, min_size=1, max_size=6))
    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_arguments_arrive_as_given(self, host: Host, arguments: list[str]) -> None:
        assert host.run([*PRINT_ARGUMENTS, *arguments]).stdout == "".join(f"{a}\0" for a in arguments).encode()


class TestFiles:
    @pytest.mark.parametrize("name", ["plain", "with space", "quo'te\"s", "$HOME `id`", "ünï ☃", "-dash"])
    def test_what_was_written_is_read(self, host: Host, folder: str, name: str) -> None:
        path = f"{folder}/a/{name}"
        data = bytes(range(256)) * 1000
        host.write(path, data)
        assert host.read(path) == data
        assert host.read(path, 250, 10) == data[250:260]
        assert host.read(path, len(data) - 3) == data[-3:]
        assert host.read(path, len(data) + 5) == b""

    def test_files_and_folders_are_private(self, host: Host, folder: str) -> None:
        host.write(f"{folder}/a/b/file", b"x")
        host.write(f"{folder}/tool", b"x", 0o755)
        shown = host.run(["stat", "-c", "%a", folder, f"{folder}/a/b", f"{folder}/a/b/file", f"{folder}/tool"])
        assert shown.text.split() == ["700", "700", "600", "755"]

    def test_a_write_replaces_the_file_and_leaves_no_draft(self, host: Host, folder: str) -> None:
        host.write(f"{folder}/file", b"old")
        host.write(f"{folder}/file", b"")
        assert host.read(f"{folder}/file") == b""
        assert host.run(["ls", "-A", folder]).text == "file\n"

    def test_a_missing_file_is_said_to_be_missing(self, host: Host, folder: str) -> None:
        with pytest.raises(FileNotFoundError):
            host.read(f"{folder}/none")

    @pytest.mark.parametrize("action", ["read", "write"])
    def test_what_cannot_be_done_names_the_path_and_reason(self, host: Host, action: str) -> None:
        with pytest.raises(HostError, match=r"/proc/nothing/file|/proc\b"):
            host.read("/proc") if action == "read" else host.write("/proc/nothing/file", b"")


class TestSpawn:
    def spawned(self, host: Host, folder: str, script: str, **options: object) -> bytes:
        """The log of a detached shell once its last line is `end`."""
        log = str(PurePosixPath(folder, "sub", "log"))
        host.spawn(["/bin/sh", "-c", f"{script}; echo end"], log=log, **options)  # type: ignore[arg-type]
        wait_until(lambda: host.read(log).endswith(b"end\n"), "the end of the detached process")
        return host.read(log)

    def test_returns_at_once_and_logs_both_outputs(self, host: Host, folder: str) -> None:
        started = time.monotonic()
        assert self.spawned(host, folder, "sleep 0.5; echo out; echo err >&2") == b"out\nerr\nend\n"
        host.spawn(["sleep", "30"], log=f"{folder}/log2")
        assert time.monotonic() - started < 10

    def test_has_a_session_of_its_own(self, host: Host, folder: str) -> None:
        said = self.spawned(host, folder, "ps -o sid= -p $$; echo $$").split()
        assert said[0] == said[1]

    def test_gets_input_through_memory_alone(self, host: Host, folder: str) -> None:
        secret = f"secret-{uuid.uuid4().hex}".encode()
        seen = self.spawned(
            host, folder, "tr '\\0' ' ' </proc/$$/cmdline; readlink /proc/$$/fd/0; sha256sum", input=secret
        )
        assert secret not in seen
        assert b"pipe:" in seen
        assert hashlib.sha256(secret).hexdigest().encode() in seen

    def test_gets_large_input_whole_though_it_reads_late(self, host: Host, folder: str) -> None:
        data = bytes(range(256)) * 20_000
        assert self.spawned(host, folder, "sleep 0.3; wc -c", input=data).split()[0] == str(len(data)).encode()

    def test_a_missing_program_is_an_error(self, host: Host, folder: str) -> None:
        with pytest.raises(HostError, match="no-such-program"):
            host.spawn(["no-such-program"], log=f"{folder}/log")


class TestStream:
    def test_yields_output_as_it_comes(self, host: Host) -> None:
        stream = host.stream(["/bin/sh", "-c", "echo one; sleep 1; echo two"])
        started = time.monotonic()
        assert next(stream) == b"one\n"
        assert time.monotonic() - started < 0.9
        assert list(stream) == [b"two\n"]

    def test_closing_it_ends_the_command_on_the_host(self, host: Host) -> None:
        mark = f"32{uuid.uuid4().int % 10**7}"
        stream = host.stream(["/bin/sh", "-c", f"echo up; sleep {mark}; echo"])
        assert next(stream) == b"up\n"
        stream.close()  # type: ignore[attr-defined]
        wait_until(lambda: shell(host, f"pgrep -fx 'sleep {mark}'").status == 1, "the command to be gone")

    def test_200_megabytes_take_little_memory(self, host: Host) -> None:
        """The output is consumed in pieces and none is larger than a megabyte."""
        total, largest = 0, 0
        for chunk in host.stream(["head", "-c", "200000000", "/dev/zero"]):
            total, largest = total + len(chunk), max(largest, len(chunk))
        assert total == 200_000_000
        assert largest <= 1 << 20

"""SshHost on bad days, against real sshds."""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from launcher.errors import InputError
from launcher.hosts import connect_all
from launcher.hosts.protocol import Answers, HostError
from launcher.hosts.ssh import SshAddress, SshHost
from tests.lab.namespaces import processes, wait_until
from tests.lab.seed import HostOptions
from tests.lab.ssh import SshLab
from tests.launcher.hosts.conftest import address_of

pytestmark = pytest.mark.lab
NOTICED_WITHIN_S = 14.0


@pytest.fixture
def healed(on_login: SshLab) -> Iterator[SshLab]:
    """The lab, whose hosts are well again afterwards."""
    yield on_login
    for name in on_login.hosts:
        on_login.heal(name)


def connect(lab: SshLab, name: str, **options: object) -> SshHost:
    return SshHost.connect(address_of(lab, name, **options))


def connection_error(lab: SshLab, name: str, **options: object) -> HostError:
    with pytest.raises(HostError) as caught:
        connect(lab, name, **options)
    assert caught.value.host == name
    return caught.value


def only_key(folder: Path, passphrase: str = "") -> dict[str, str]:
    """A new key, and an ssh_config that offers no other."""
    key, config = folder / "key", folder / "config"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(key)], check=True)
    config.touch()
    return {"identity": str(key), "ssh_config": str(config)}


class TestLostHosts:
    @pytest.mark.parametrize("event", ["cut", "freeze", "crash"])
    def test_a_lost_host_is_noticed_by_who_waits_for_it(self, healed: SshLab, event: str) -> None:
        with closing(connect(healed, "n3")) as host:
            waiting = host.stream(["/bin/sh", "-c", "echo up; sleep 600"])
            assert next(waiting) == b"up\n"
            getattr(healed, event)("n3")
            started = time.monotonic()
            with pytest.raises(HostError, match="n3: lost"):
                next(waiting)
            assert time.monotonic() - started < NOTICED_WITHIN_S
        if event == "crash":
            healed.boot("n3")

    def test_a_host_that_froze_meanwhile_is_noticed_by_the_next_command(self, healed: SshLab) -> None:
        with closing(connect(healed, "n3")) as host:
            healed.freeze("n3")
            started = time.monotonic()
            with pytest.raises(HostError, match="lost"):
                host.run(["true"])
            assert time.monotonic() - started < NOTICED_WITHIN_S

    def test_a_host_that_freezes_under_a_large_input_is_noticed(self, healed: SshLab) -> None:
        with closing(connect(healed, "n3")) as host:
            freezing = threading.Timer(0.5, healed.freeze, ["n3"])
            freezing.start()
            started = time.monotonic()
            with pytest.raises(HostError, match="lost"):
                host.run(["sleep", "600"], input=bytes(64 << 20), timeout=60)
            assert time.monotonic() - started < NOTICED_WITHIN_S + 1
            freezing.join()

    def test_a_busy_host_that_says_nothing_is_not_taken_for_lost(self, on_login: SshLab) -> None:
        with closing(connect(on_login, "n3")) as host:
            assert host.run(["/bin/sh", "-c", "exec >&- 2>&-; sleep 4; exit 7"]).status == 7

    def test_a_write_that_breaks_off_leaves_nothing(self, healed: SshLab) -> None:
        folder = f"/root/{uuid.uuid4().hex}"
        port = ["tc", "qdisc", "{}", "dev", "n3", "root"]
        slow = ["tbf", "rate", "40mbit", "burst", "64kb", "latency", "50ms"]
        healed.run_on_login([word.format("add") for word in port] + slow, check=True)
        with closing(connect(healed, "n3")) as host:
            closing_it = threading.Timer(1.5, host.close)
            closing_it.start()
            with pytest.raises(HostError):
                host.write(f"{folder}/checkpoint", bytes(64 << 20))
            closing_it.join()
        healed.run_on_login([word.format("del") for word in port], check=True)
        files = ["find", folder, "-type", "f"]
        wait_until(lambda: healed.run_on("n3", files).stdout == "", "the draft to be removed")


class TestRefusedConnections:
    def test_an_unknown_host_key_is_refused_and_not_learnt(self, on_login: SshLab, tmp_path: Path) -> None:
        known = tmp_path / "known_hosts"
        known.touch()
        error = connection_error(on_login, "n1", known_hosts=str(known))
        assert "host key SHA256:" in error.message
        assert f"ssh-keyscan {on_login.address('n1')} >> {known}" in error.help
        assert known.read_text() == ""

    def test_the_help_against_an_unknown_key_helps(self, on_login: SshLab, tmp_path: Path) -> None:
        known = tmp_path / "known_hosts"
        error = connection_error(on_login, "n2", known_hosts=str(known))
        command = error.help.partition("then: ")[2]
        on_login.run_on_login(["sh", "-c", command], check=True)
        connect(on_login, "n2", known_hosts=str(known)).close()

    def test_a_changed_host_key_is_refused_until_the_help_is_followed(self, on_login: SshLab, tmp_path: Path) -> None:
        known = tmp_path / "known_hosts"
        known.write_text(on_login.known_hosts.read_text())
        lines = {line.split()[0]: line for line in known.read_text().splitlines()}
        other = lines[f"n2,{on_login.address('n2')}"].split(maxsplit=1)[1]
        known.write_text(f"{on_login.address('n1')} {other}\n")
        error = connection_error(on_login, "n1", known_hosts=str(known))
        assert "has changed" in error.message
        command = error.help.partition("anew: ")[2]
        on_login.run_on_login(["sh", "-c", command], check=True)
        connect(on_login, "n1", known_hosts=str(known)).close()

    def test_a_key_that_the_host_does_not_know(self, on_login: SshLab, tmp_path: Path) -> None:
        error = connection_error(on_login, "n1", **only_key(tmp_path))
        assert "refuses the keys of user root" in error.message
        assert "ssh-copy-id" in error.help

    def test_a_key_with_a_passphrase_asks_for_the_agent(self, on_login: SshLab, tmp_path: Path) -> None:
        error = connection_error(on_login, "n1", **only_key(tmp_path, "secret"))
        assert "ssh-add" in error.help

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"port": 2222}, "connection refused"),
            ({"address": "10.77.0.200"}, "no route to host"),
            ({"address": "no-such-host.invalid"}, "does not resolve"),
        ],
    )
    def test_a_host_that_cannot_be_reached(self, on_login: SshLab, options: dict[str, object], message: str) -> None:
        error = connection_error(on_login, "n1", **options)
        assert message in error.message.lower()
        assert error.help

    def test_a_frozen_host_accepts_but_no_sshd_answers(self, healed: SshLab) -> None:
        healed.freeze("n3")
        started = time.monotonic()
        assert "no sshd answers" in connection_error(healed, "n3").message
        assert time.monotonic() - started < NOTICED_WITHIN_S

    @pytest.mark.parametrize("field", ["identity", "ssh_config"])
    def test_a_missing_file_is_an_error_of_input(self, on_login: SshLab, field: str) -> None:
        with pytest.raises(InputError, match=rf"{field} /no/such/file"):
            connect(on_login, "n1", **{field: "/no/such/file"})

    def test_all_hosts_are_tried_and_the_failed_named(self, on_login: SshLab) -> None:
        addresses = [address_of(on_login, "n1"), address_of(on_login, "n2", port=2222), address_of(on_login, "n3")]
        hosts = connect_all(addresses)
        assert list(hosts.failed) == ["n2"]
        close_all(hosts)


def close_all(hosts: Answers[SshHost]) -> None:
    for host in hosts.good.values():
        host.close()


class TestLimitsOfSshd:
    @pytest.fixture(scope="class")
    def narrow(self, ssh_lab_ready: None) -> Iterator[SshLab]:
        closed = HostOptions(files={"/root/.bashrc": "echo Down for maintenance.; exit 3\n"})
        limits = HostOptions(sshd=["MaxStartups 2:100:3", "MaxSessions 2"])
        with SshLab(2, options=limits, per_host={"n2": closed}) as lab:
            yield lab

    @pytest.fixture
    def narrow_network(self, narrow: SshLab) -> Iterator[SshLab]:
        with narrow.entered():
            yield narrow

    def test_connections_turned_away_are_tried_again(self, narrow_network: SshLab) -> None:
        same = address_of(narrow_network, "n1", known_hosts=str(narrow_network.known_hosts))
        addresses = [
            SshAddress(f"as{number}", same.target, "root", None, same.identity, None, same.known_hosts)
            for number in range(24)
        ]
        hosts = connect_all(addresses, workers=24)
        assert not hosts.failed
        close_all(hosts)
        log = narrow_network.run_on("n1", ["cat", "/var/log/sshd.log"]).stdout
        assert "MaxStartups" in log

    def test_sessions_refused_are_asked_for_again(self, narrow_network: SshLab) -> None:
        known = str(narrow_network.known_hosts)
        with closing(connect(narrow_network, "n1", known_hosts=known)) as host:
            done: list[int] = []
            threads = [
                threading.Thread(target=lambda: done.append(host.run(["sleep", "0.1"]).status)) for _ in range(12)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert done == [0] * 12

    def test_a_login_shell_that_lets_nobody_in_is_quoted(self, narrow_network: SshLab) -> None:
        known = str(narrow_network.known_hosts)
        said = r"did not run our command: Down for maintenance\."
        with closing(connect(narrow_network, "n2", known_hosts=known)) as host, pytest.raises(HostError, match=said):
            host.run(["true"])


class TestGateways:
    @pytest.fixture
    def hidden(self, on_login: SshLab) -> Iterator[SshLab]:
        """n1 and n3 cannot be reached from the login node, but from n2."""
        for name in ("n1", "n3"):
            on_login.run_on(name, ["ip", "route", "add", "blackhole", "10.77.0.254"])
        yield on_login
        for name in ("n1", "n3"):
            on_login.run_on(name, ["ip", "route", "del", "blackhole", "10.77.0.254"])

    def config(self, lab: SshLab, folder: Path, text: str) -> str:
        path = folder / "config"
        path.write_text(f"{text}\nHost *\n  User root\n  IdentityFile {lab.identity}\n")
        return str(path)

    def test_hosts_share_the_gateway_of_ssh_config(self, hidden: SshLab, tmp_path: Path) -> None:
        gateway = hidden.address("n2")
        text = f"Host 10.77.0.1 10.77.0.3\n  ProxyJump {gateway}"
        config = self.config(hidden, tmp_path, text)
        addresses = [SshAddress(name, hidden.address(name), ssh_config=config) for name in hidden.hosts]
        hosts = connect_all(addresses)
        names = {name: host.run(["hostname"]).text.strip() for name, host in hosts.good.items()}
        assert names == {"n1": "n1", "n2": "n2", "n3": "n3"}
        sessions = hidden.run_on("n2", ["pgrep", "-fc", "^sshd: root"]).stdout
        assert int(sessions) == 2, "one connection to n2 as a gateway, one as a host"
        close_all(hosts)
        gone = ["sh", "-c", "pgrep -fc '^sshd: root' || true"]
        wait_until(lambda: hidden.run_on("n2", gone).stdout.strip() == "0", "the gateway's connection to end")

    def test_several_hops(self, hidden: SshLab) -> None:
        hops = f"root@{hidden.address('n2')},{hidden.address('n3')}:22"
        with closing(connect(hidden, "n1", jump=hops)) as host:
            assert host.run(["hostname"]).text == "n1\n"

    def test_none_switches_the_gateway_off(self, on_login: SshLab, tmp_path: Path) -> None:
        config = self.config(on_login, tmp_path, "Host *\n  ProxyJump no-such-gateway.invalid")
        connect(on_login, "n1", ssh_config=config, jump="none").close()

    def test_an_unknown_gateway_is_refused_like_an_unknown_host(self, on_login: SshLab, tmp_path: Path) -> None:
        known = tmp_path / "known_hosts"
        lines = on_login.known_hosts.read_text().splitlines(keepends=True)
        known.write_text("".join(line for line in lines if not line.startswith("n2,")))
        error = connection_error(on_login, "n1", jump=on_login.address("n2"), known_hosts=str(known))
        assert "gateway" in error.message
        assert "is not known" in error.message

    def test_a_gateway_that_cannot_reach_the_host_says_so(self, on_login: SshLab) -> None:
        error = connection_error(on_login, "n1", address="10.77.0.99", jump=on_login.address("n2"))
        assert "gateway cannot reach 10.77.0.99" in error.message


class TestSpawn:
    def test_what_was_spawned_survives_the_end_of_the_connection(self, on_login: SshLab) -> None:
        log = f"/tmp/{uuid.uuid4().hex}"
        host = connect(on_login, "n1")
        host.spawn(["/bin/sh", "-c", "sleep 1; echo still here; sleep 600"], log=log)
        host.close()
        wait_until(lambda: on_login.run_on("n1", ["cat", log]).stdout == "still here\n", "the spawned process to speak")
        on_login.run_on("n1", ["pkill", "-f", "still here"])

    def test_a_secret_is_in_no_command_line_and_no_file(self, on_login: SshLab) -> None:
        secret = uuid.uuid4().hex
        log = f"/tmp/{uuid.uuid4().hex}"
        with closing(connect(on_login, "n1")) as host:
            host.spawn(["/bin/sh", "-c", "read -r word; echo got; sleep 600"], input=f"{secret}\n".encode(), log=log)
            wait_until(lambda: host.read(log) == b"got\n", "the spawned process to read its input")
            for pid in processes(on_login.namespace("n1")):
                assert secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
            written = host.run(
                ["grep", "-rlF", "--exclude-dir=lib", "-f", "-", "/tmp", "/var", "/run"], input=secret.encode()
            )
            assert written.text == ""
        on_login.run_on("n1", ["pkill", "-f", "echo got"])


class TestResources:
    def test_a_full_disk_is_named_and_leaves_no_part(self, on_login: SshLab) -> None:
        with closing(connect(on_login, "n1")) as host:
            with pytest.raises(HostError, match=r"cannot write /root/full/big: .*No space left on device"):
                host.write("/root/full/big", bytes(700 << 20))
            assert host.run(["ls", "-A", "/root/full"]).text == ""

    def test_200_megabytes_are_streamed_in_flat_memory(self, on_login: SshLab) -> None:
        process = psutil.Process()
        with closing(connect(on_login, "n1")) as host:
            before, most, total = process.memory_info().rss, 0, 0
            for chunk in host.stream(["head", "-c", "200000000", "/dev/urandom"]):
                total += len(chunk)
                most = max(most, process.memory_info().rss)
        assert total == 200_000_000
        assert most - before < 40 << 20

    def test_nothing_is_left_after_close(self, healed: SshLab) -> None:
        def used() -> tuple[int, int]:
            return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

        connect(healed, "n2").close()  # what is loaded once
        before = used()
        hosts = connect_all([address_of(healed, name, jump=healed.address("n2")) for name in ("n1", "n3")])
        lost = connect(healed, "n3")
        stream = lost.stream(["sleep", "600"])
        waiter = threading.Thread(target=self.wait_for_loss, args=[lambda: next(stream)])
        waiter.start()
        healed.freeze("n3")
        waiter.join()
        connection_error(healed, "n1", port=2222)
        close_all(hosts)
        lost.close()
        wait_until(lambda: used() == before, f"descriptors and threads to be {before}")

    def wait_for_loss(self, action: Callable[[], object]) -> None:
        with pytest.raises(HostError):
            action()

"""From findings to verdicts, exit statuses and what is kept; drift against what was kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.common.finding import Finding, unknown
from launcher.errors import CannotActError, InputError
from launcher.inventory import parse_inventory
from launcher.preflight.checks.drift import drift, snapshot
from launcher.preflight.kept import EXPIRY_S, exclusions, keep, kept_file, read_kept
from launcher.preflight.result import Result, lines, verdicts
from launcher.topology import Nic
from tests.launcher.preflight.hosts import GIB, sound, topology

INVENTORY = """
default: gpus
clusters:
  gpus: {kind: ssh, hosts: 'n[1-4]'}
  here: {kind: local}
"""
CLUSTERS = parse_inventory(INVENTORY, "inventory.yaml").clusters


def finding(severity: str, *hosts: str, code: str = "preflight.clock_skew") -> Finding:
    return Finding(code, severity, f"{code} on {', '.join(hosts)}", "mend it", hosts=hosts)  # type: ignore[arg-type]


def result(*findings: Finding, silent: dict[str, CannotActError] | None = None, time: float = 1000.0) -> Result:
    return Result("gpus", verdicts(["n1", "n2", "n3"], findings, silent or {}), time, time + EXPIRY_S)


def states(of: Result) -> dict[str, str]:
    return {host.host: host.verdict for host in of.hosts}


def test_a_host_is_bad_from_a_warning_on_and_good_with_remarks() -> None:
    told = result(finding("info", "n1"), finding("warning", "n2"), finding("error", "n3"))
    assert states(told) == {"n1": "good", "n2": "bad", "n3": "bad"}
    assert told.exit_status == 1
    assert result(finding("info", "n1")).exit_status == 0


def test_a_finding_stands_with_each_of_its_hosts_and_is_printed_once() -> None:
    told = result(finding("warning", "n1"), finding("error", "n1", "n3", code="preflight.slow_link"))
    assert [one.code for one in told.hosts[0].findings] == ["preflight.slow_link", "preflight.clock_skew"]
    assert sum("slow_link:" in line for line in lines(told)) == 1


def test_what_was_not_seen_is_told_apart_and_does_not_make_a_host_bad() -> None:
    blind = unknown("Xids of n1: not permitted", hosts=["n1"])
    told = result(blind)
    assert states(told)["n1"] == "good"
    assert told.to_json()["hosts"][0]["unknown"][0]["cause"] == "Xids of n1: not permitted"
    assert "not seen Xids of n1: not permitted" in lines(told)


def test_a_host_without_an_answer_is_unknown() -> None:
    told = result(silent={"n2": CannotActError("n2: no route to host", help="ping n2")})
    assert states(told)["n2"] == "unknown" and told.exit_status == 3
    assert "ping n2" in told.hosts[1].findings[0].cause


def test_a_disk_that_cannot_even_take_our_node_side_is_full() -> None:
    told = result(silent={"n2": CannotActError("n2: cannot unpack: OSError: [Errno 28] No space left on device")})
    assert (states(told)["n2"], told.hosts[1].findings[0].code) == ("bad", "host.disk_full")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DLAUNCH_HOME", str(tmp_path))
    return tmp_path


def test_only_good_hosts_are_left(home: Path) -> None:
    """n2 is bad, n3 unknown, n4 was never looked at."""
    keep(result(finding("error", "n2"), silent={"n3": CannotActError("n3: lost")}), "inventory.yaml", {})
    assert exclusions("gpus", CLUSTERS["gpus"], "inventory.yaml", 2000.0) == ["n2", "n3", "n4"]


def test_nothing_fresh_and_nothing_good_are_told_with_the_command_that_helps(home: Path) -> None:
    with pytest.raises(InputError, match="no preflight of cluster gpus is kept") as none:
        exclusions("gpus", CLUSTERS["gpus"], "inventory.yaml", 0.0)
    assert none.value.help == "dlaunch preflight --cluster gpus" and none.value.where == "--exclude-bad"
    keep(result(), "inventory.yaml", {})
    with pytest.raises(InputError, match="is 14 h old"):
        exclusions("gpus", CLUSTERS["gpus"], "inventory.yaml", 1000 + 14 * 3600.0)
    with pytest.raises(InputError, match="no preflight"):
        exclusions("gpus", CLUSTERS["gpus"], "other.yaml", 1000.0)
    keep(result(finding("error", "n1", "n2", "n3")), "inventory.yaml", {})
    with pytest.raises(InputError, match="no good host"):
        exclusions("gpus", CLUSTERS["gpus"], "inventory.yaml", 1000.0)


def test_this_machine_is_good_or_the_job_is_refused(home: Path) -> None:
    here = Result("here", verdicts(["localhost"], [], {}), 0.0, EXPIRY_S)
    keep(here, "", {})
    assert exclusions("here", CLUSTERS["here"], "", 1.0) == []


def test_a_damaged_file_is_no_result(home: Path) -> None:
    keep(result(), "inventory.yaml", {})
    kept_file("gpus", "inventory.yaml").write_text("{")
    assert read_kept("gpus", "inventory.yaml") == {}


def test_what_was_kept_is_private_and_whole(home: Path) -> None:
    keep(result(finding("error", "n2")), "inventory.yaml", {"n1": snapshot(sound("n1"), 5.0)})
    file = kept_file("gpus", "inventory.yaml")
    assert file.stat().st_mode & 0o777 == 0o600
    document = json.loads(file.read_text())
    assert document["schema"] == 1 and document["hosts"][1]["verdict"] == "bad"
    assert not list(drift(sound("n1"), document["baseline"]["n1"]))  # JSON gives back what was put in


BEFORE = snapshot(sound("n1"), 1_700_000_000.0)


def drifted(**changes: object) -> list[tuple[str, str]]:
    return [(one.code, one.severity) for one in drift(sound("n1", **changes), json.loads(json.dumps(BEFORE)))]


def test_nothing_changed() -> None:
    assert drifted() == []


def test_a_lost_link_is_named_by_its_device() -> None:
    whole = topology("n1")
    left = tuple(link for link in whole.links if "GPU2" not in (link.a, link.b))
    (told,) = drift(sound("n1", topology=replace(whole, links=left)), BEFORE)
    assert told.code == "gpu.nvlink_missing" and told.cause.startswith("GPU2 of n1 lost NVLinks since ")
    assert drifted(topology=topology("n1", lanes=6)) == [("gpu.nvlink_missing", "error")]
    assert drifted(topology=topology("n1", lanes=18)) == []


def test_a_lost_device_is_named_and_its_links_not_told_again() -> None:
    (told,) = drift(sound("n1", topology=topology("n1", devices=3)), BEFORE)
    assert told.code == "init.device_invisible" and "GPU3 of n1 is gone" in told.cause


def test_other_numbers_are_a_remark() -> None:
    whole = topology("n1")
    turned = tuple(replace(device, uuid=f"GPU-n1-{(device.index + 1) % 4}") for device in whole.devices)
    assert drifted(topology=replace(whole, devices=turned)) == [("preflight.renumbered", "info")]


def test_a_replaced_device_is_no_loss() -> None:
    whole = topology("n1")
    fresh = (*whole.devices[:3], replace(whole.devices[3], uuid="GPU-new"))
    assert drifted(topology=replace(whole, devices=fresh)) == []


@pytest.mark.parametrize(
    ("nics", "code"),
    [
        ((Nic("NIC0", "mlx5_0", up=False),), "preflight.nic_down"),
        ((), "preflight.nic_down"),
        ((Nic("NIC0", "mlx5_0", up=True, gbps=100.0),), "preflight.nic_slow"),
    ],
)
def test_a_worse_port_is_told(nics: tuple[Nic, ...], code: str) -> None:
    assert drifted(topology=replace(topology("n1"), nics=nics)) == [(code, "error")]


def test_lost_memory_is_told() -> None:
    assert drifted(memory=448 * GIB) == [("preflight.memory_lost", "error")]
    assert drifted(memory=510 * GIB) == []

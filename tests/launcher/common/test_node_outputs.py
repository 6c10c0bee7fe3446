"""The node outputs of real machines give the facts that a careful reader takes from them."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from launcher.common.kernel_lines import KernelEvent, parse_kernel
from launcher.common.node_reports import (
    dcgm,
    dcgm_trees,
    fabric_manager,
    infiniband,
    nccl_tests,
    nvidia_smi,
    pci,
    processes,
)

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "system"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of node outputs is not here")


@cache
def expected() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((CORPUS / "expected.json").read_text())
    return document


def load(number: str) -> tuple[str, Any]:
    """Text of a file and what it should give."""
    path = next(CORPUS.glob(f"{number}-*"))
    return path.read_text(), expected()[path.name]


def kernel(number: str) -> tuple[list[KernelEvent], Any]:
    text, facts = load(number)
    return list(parse_kernel(text.splitlines())), facts


@pytest.mark.parametrize("number", ["001", "002", "003"])
def test_nvidia_smi_query(number: str) -> None:
    text, facts = load(number)
    report = nvidia_smi.parse_query(text)
    gpu = report.gpus[0]
    assert (report.driver, report.cuda, report.attached) == (facts["driver"], facts["cuda"], int(facts["gpus"]))
    assert gpu.get("Product Name") == facts["product"]
    assert gpu.get("ECC Mode/Current") in (facts["ecc_mode"], None)
    assert gpu.get("Performance State") == facts["performance_state"]
    assert gpu.get("GPU Recovery Action") in (facts["recovery_action"], None)
    assert gpu.get("Fabric/State") == nvidia_smi.value_or_none(facts["fabric_state"])
    assert gpu.get("MIG Mode/Current") == nvidia_smi.value_or_none(facts["mig_mode"])
    assert gpu.get("Remapped Rows/Pending") in (facts["remap_pending"], "No")


@pytest.mark.parametrize("number", ["004", "005", "006"])
def test_nvidia_smi_csv(number: str) -> None:
    text, facts = load(number)
    table = nvidia_smi.parse_csv(text)
    assert (len(table.columns), len(table.rows), table.missing_cells) == (
        facts["columns"],
        facts["rows"],
        facts["na_cells"],
    )
    for row, values in zip(table.rows, facts["facts"], strict=True):
        assert values.items() <= row.items()


def test_csv_without_remapping() -> None:
    text, facts = load("018")
    table = nvidia_smi.parse_csv(text)
    assert [int(row["retired_pages.dbe"]) for row in table.rows] == facts["retired_dbe"]
    assert {table.value(row, "remapped_rows.failure") for row in range(facts["rows"])} == {None}


def test_nvidia_smi_table_of_processes() -> None:
    text, facts = load("011")
    assert len(nvidia_smi.parse_csv(text).rows) == facts["rows"]


def test_memory_errors_of_gpus() -> None:
    text, facts = load("013")
    gpus = nvidia_smi.parse_query(text).gpus
    assert [
        {
            "bus": gpu.bus,
            "single": gpu.count("Retired Pages/Single Bit ECC"),
            "double": gpu.count("Retired Pages/Double Bit ECC"),
            "pending": gpu.get("Retired Pages/Pending Page Blacklist"),
        }
        for gpu in gpus
    ] == facts["gpus"]
    text, facts = load("020")
    gpu = nvidia_smi.parse_query(text).gpus[0]
    assert (gpu.bus, gpu.count("Volatile/DRAM Correctable")) == (facts["bus"], facts["dram_correctable"])
    assert gpu.get("Remapped Rows/Pending") == "Yes" and gpu.get("Remapping Failure Occurred") == "No"
    text, facts = load("021")
    gpu = nvidia_smi.parse_query(text).gpus[0]
    assert gpu.count("Volatile/SRAM Uncorrectable") == facts["volatile_sram_uncorrectable"]
    assert gpu.count("Aggregate/SRAM Uncorrectable") == facts["aggregate_sram_uncorrectable"]


def test_nvlinks() -> None:
    text, facts = load("009")
    (gpu,) = nvidia_smi.parse_nvlink(text)
    assert len(gpu.speed) == facts["links_up"] and set(gpu.speed.values()) == {facts["speed"]}
    text, facts = load("014")
    (gpu,) = nvidia_smi.parse_nvlink(text)
    assert (gpu.gpu, len(gpu.speed), gpu.all_inactive) == (facts["gpu"], 0, True)
    text, facts = load("015")
    assert {
        str(gpu.gpu): {"up": len(gpu.speed), "inactive": list(gpu.inactive)} for gpu in nvidia_smi.parse_nvlink(text)
    } == facts["gpus"]
    text, facts = load("016")
    gpus = nvidia_smi.parse_nvlink(text)
    assert (len(gpus), sum(len(gpu.speed) for gpu in gpus)) == (facts["gpus"], facts["links"])
    text, facts = load("053")
    gpus = nvidia_smi.parse_nvlink(text)
    nonzero = [[gpu.gpu, link, name, count] for gpu in gpus for (link, name), count in gpu.errors.items() if count]
    assert nonzero == facts["nonzero"]
    assert [gpu.gpu for gpu in gpus if gpu.not_available] == facts["not_available"]


def test_peer_access() -> None:
    text, facts = load("051")
    assert set(nvidia_smi.parse_p2p(text).values()) == {facts["code"]}


def test_infiniband_ports() -> None:
    text, facts = load("019")
    ports = {f"{port.device}/{port.port}": port for port in infiniband.parse_ibstatus(text)}
    for name, fact in facts["ports"].items():
        port = ports[name]
        assert (port.state, port.physical, port.rate_gbps, port.link_layer) == (
            fact["state"],
            fact["phys"],
            fact["rate_gbps"],
            fact["link_layer"],
        )
    text, facts = load("055")
    found = infiniband.parse_ibstat(text)
    assert {port.device: [port.state, port.physical, port.rate_gbps] for port in found} == facts["ports"]
    assert [port.device for port in found if not port.up] == facts["bad"]
    text, facts = load("057")
    devices = infiniband.parse_ibdev2netdev(text)
    assert {device: name for device, (name, _) in devices.items()} == facts["map"]
    assert [device for device, (_, up) in devices.items() if up] == facts["netdev_up"]


@pytest.mark.parametrize("number", ["024", "025", "026", "069"])
def test_dcgm_json(number: str) -> None:
    text, facts = load(number)
    found = dcgm.parse_diag_json(text).not_pass
    assert [[one.category, one.test, one.gpu, one.status, one.text] for one in found] == facts["not_pass"]


def test_dcgm_text_and_links() -> None:
    text, facts = load("022")
    diagnostic = dcgm.parse_diag_text(text)
    assert not diagnostic.passed
    assert [(one.text, one.gpu) for one in diagnostic.not_pass] == [(facts["errors"][0], str(facts["gpu"]))]
    text, facts = load("023")
    diagnostic = dcgm.parse_diag_text(text)
    assert (diagnostic.version, diagnostic.driver, diagnostic.gpus, diagnostic.passed) == (
        facts["dcgm"],
        facts["driver"],
        facts["gpus"],
        True,
    )
    text, facts = load("027")
    (gpu,) = dcgm_trees.parse_nvlink_errors(text)
    assert [[f"Link {link}", name, str(n)] for (link, name), n in gpu.errors.items() if n] == facts["nonzero"]
    text, facts = load("071")
    states = dcgm.parse_link_status(text)
    assert {key.replace(" ", ""): {"up": one.up, "down": one.down} for key, one in states.items()} == facts


def test_kernel_xids() -> None:
    events, facts = kernel("028")
    assert [{"bus": one["bus"], "xid": one.xid, "pid": one["pid"]} for one in events] == facts["xids"]
    events, facts = kernel("029")
    assert Counter(str(one.xid) for one in events if one.xid) == facts["xid_counts"]
    assert [one.line for one in events if one.kind.startswith("oom")] == facts["oom_lines"]
    events, facts = kernel("059")
    assert [[one["bus"], one.xid] for one in events if one.xid] == facts["xids"]
    assert [
        {"port": one["port"], "severity": one["severity"], "bit": int(one["bit"])}
        for one in events
        if one.kind == "aer"
    ] == facts["aer"]


def test_kernel_other_events() -> None:
    events, facts = kernel("030")
    fault = facts["segfault"]
    assert len(events) == fault["count"]
    assert (events[0]["name"], int(events[0]["pid"]), events[0]["library"]) == (
        fault["process"],
        fault["pid"],
        fault["library"],
    )
    events, facts = kernel("061")
    for class_ in ("CE", "UE"):
        found = [[one["controller"], int(one["count"]), one["dimm"]] for one in events if one["class"] == class_]
        assert found == facts[class_.lower()]
    for number in ("032", "034"):
        assert kernel(number)[0] == []


def test_kmsg_records() -> None:
    text, _ = load("031")
    assert {one.kind for one in parse_kernel(text.splitlines())} == {"peermem"}


def test_fabric_manager_log() -> None:
    text, facts = load("033")
    lines = fabric_manager.parse_fabric_manager(text.splitlines())
    assert Counter(line.level for line in lines) == facts["levels"]
    assert [line.raw.startswith(want[:100]) for line in lines if line.level == "ERROR" for want in facts["error_lines"]]


def test_pcie_access_control() -> None:
    text, facts = load("035")
    controls = {one.slot: one for one in pci.parse_acs(text)}
    assert {slot: one.flags for slot, one in controls.items()} == {
        slot: flags for slot, flags in facts["devices"].items() if flags is not None
    }
    assert not any(one.redirects for one in controls.values())
    text, facts = load("036")
    assert [one.slot for one in pci.parse_acs(text) if one.redirects] == facts["acs_redirect_on"]
    text, facts = load("063")
    found = pci.parse_acs(text)
    assert len(found) == facts["lines"]
    assert [one.line for one in found if one.redirects] == facts["redirect_on"]
    assert [one.line for one in found if one.source_validation_only] == facts["source_validation_only"]


@pytest.mark.parametrize("number", ["037", "038", "039", "040"])
def test_nccl_tests_tables(number: str) -> None:
    text, facts = load(number)
    table = nccl_tests.parse_tables(text)
    assert (len(table.rows), table.average_busbw) == (facts["rows"], facts["avg_busbw"])
    assert table.out_of_bounds == (tuple(facts["out_of_bounds"]) if facts["out_of_bounds"] else None)
    wanted = [cell for cell in facts["last_row"] if not cell.endswith(":")]
    assert list(table.rows[-1].cells) == wanted


def test_kernel_waits() -> None:
    text, facts = load("065")
    stack = processes.parse_stack(text)
    assert stack and (stack.function, stack.module, stack.cause) == (facts["top"], facts["module"], facts["cause"])
    text, facts = load("067")
    waits = processes.parse_wchan_table(text)
    assert [one.pid for one in waits if one.state == "D"] == facts["d_state"]
    assert {str(one.pid): one.cause for one in waits if one.cause} == facts["causes"]
    assert [one.pid for one in waits if not one.cause and one.state == "S"] == facts["normal_waits"]

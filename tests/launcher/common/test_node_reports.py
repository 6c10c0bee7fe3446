"""Outputs of node tools in the forms of other versions, launchers and logs than the usual ones."""

from __future__ import annotations

import pytest

from launcher.common.node_reports import dcgm, fabric_manager, infiniband, nccl_tests, nvidia_smi, processes


def table(*rows: str) -> str:
    head = ["+-----------+----------+", "| Diagnostic  | Result   |", "+===========+==========+"]
    return "\n".join([*head, "|-----  Deployment  --------+-----------|", *rows])


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (["| software | Pass      |", "|          | GPU0: Pass |", "|          | GPU1: Fail |"], [("1", "Fail")]),
        (["| Stress   | Pass - GPUs: 0, 1 |", "|          | Fail - GPUs: 2, 3 |"], [("2, 3", "Fail")]),
        (["| software | Pass      |", "| Warning: GPU1 | Remapping is pending |"], [("1", "Error")]),
        (["| memory   | Pass - All |", "| Info: GPU 0 | Allocated 64 bytes |"], []),
        (["| memory   | Skip - All |"], [(None, "Skip")]),
        (["| Diagnostic | Fail - GPUs: 1, 3 |"], [("1, 3", "Fail")]),
    ],
)
def test_the_worst_result_of_a_row_counts(rows: list[str], found: list[tuple[str | None, str]]) -> None:
    diagnostic = dcgm.parse_diag_text(table(*rows))
    assert [(one.gpu, one.status) for one in diagnostic.not_pass] == found
    assert diagnostic.passed is not bool(found)


def test_a_table_behind_comment_marks() -> None:
    text = table("| software | Fail |")
    assert dcgm.parse_diag_text("\n".join(f"# {line}" for line in text.splitlines())).not_pass


def test_lines_of_the_fabric_manager_in_the_journal() -> None:
    lines = [
        "Nov 05 13:55:26 n1 systemd[1]: Starting NVIDIA fabric manager service...",
        "Nov 05 13:55:26 n1 nv-fabricmanager[12]: interface version 5.1 don't match with driver version 5.2.",
        "Nov 05 13:55:27 n1 nv-fabricmanager[12]: Connected to 1 node.",
    ]
    found = fabric_manager.parse_fabric_manager(lines)
    assert [(one.line, one.level, one.time) for one in found] == [
        (2, "ERROR", "Nov 05 13:55:26"),
        (3, "INFO", "Nov 05 13:55:27"),
    ]


def test_rates_of_ports_with_and_without_their_technology() -> None:
    port = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: {}\n"
    assert [infiniband.parse_ibstat(port.format(rate))[0].rate_gbps for rate in ("400", "40 (FDR10)", "N/A")] == [
        400.0,
        40.0,
        0.0,
    ]


def test_ports_that_ibv_devinfo_shows() -> None:
    text = (
        "hca_id:\tmlx5_0\n\tphys_port_cnt:\t1\n\t\tport:\t1\n\t\t\tstate:\tPORT_ACTIVE (4)\n\t\t\tport_lid:\t7\n\n"
        "hca_id:\trocep1s0\n\t\tport:\t1\n\t\t\tstate:\tPORT_DOWN (1)\n\t\t\tlink_layer:\tEthernet\n"
    )
    assert [(one.device, one.state, one.up, one.lid) for one in infiniband.parse_devinfo(text)] == [
        ("mlx5_0", "ACTIVE", True, 7),
        ("rocep1s0", "DOWN", False, None),
    ]


def test_ibdev2netdev_in_its_long_form() -> None:
    text = "0000:3b:00.0 mlx5_2 (MT4123 - X) X fw 20.31 port 1 (ACTIVE) ==> ib2 (Down)\nmlx5_0 port 1 ==> ib0 (Up)\n"
    assert infiniband.parse_ibdev2netdev(text) == {"mlx5_2": ("ib2", False), "mlx5_0": ("ib0", True)}


@pytest.mark.parametrize("lead", ["", "0: ", "[1,0]<stdout>:", "worker-0:", "(T pid=3)   ", "2031-05-01T10:00:00.1Z "])
def test_rows_of_a_bandwidth_test_behind_any_prefix(lead: str) -> None:
    row = nccl_tests.parse_row(f"{lead}  1024   256  float  sum  -1  33.0  2.5  4.5  0  32.0  2.75  4.75  N/A")
    assert row and (row.size, row.count, row.busbw, row.in_place_busbw, row.wrong) == (1024, 256, 4.5, 4.75, 0)


def test_links_with_commas() -> None:
    (gpu,) = nvidia_smi.parse_nvlink("GPU 0: X (UUID: GPU-1)\n\t Link 1, CRC FLIT Error: 5\n")
    assert gpu.errors == {(1, "CRC FLIT Error"): 5}


def test_waits_below_a_header_with_other_columns() -> None:
    rows = ("12  1 Dl  rpc_wait_bit_killable python train.py", "13  1 R+  - ps")
    text = "\n".join(["  PID  PPID STAT WCHAN  COMMAND", *rows])
    assert [(one.pid, one.state, one.cause) for one in processes.parse_wchan_table(text)] == [
        (12, "D", "nfs"),
        (13, "R", None),
    ]


def test_rows_of_a_bandwidth_test_with_single_iterations_and_a_time() -> None:
    head, body = "2048 512 float sum -1", ("40.0 2.5 4.5 0 1.0 2.0 3.0 4.0", "41.0 2.75 4.75 3 1.0 2.0 3.0 4.0")
    row = nccl_tests.parse_row(f"  {head} {body[0]} {body[1]}  2031-05-01 10:00:00")
    assert row and (row.time_us, row.busbw, row.in_place_busbw, row.wrong) == (40.0, 4.5, 4.75, 3)


@pytest.mark.parametrize(("cell", "wrong"), [("12", 12), ("1e+06", 1_000_000), ("3.5e-07", None), ("N/A", None)])
def test_wrong_elements_of_a_bandwidth_test(cell: str, wrong: int | None) -> None:
    row = nccl_tests.parse_row(f"64 16 float sum -1 33.0 2.5 4.5 {cell} 32.0 2.75 4.75 N/A")
    assert row and row.wrong == wrong


def test_a_bandwidth_test_that_lost_its_number_signs() -> None:
    text = " Rank  0 Group  0 Pid 12 on n1 device  0 [0x00]\n Out of bounds values : 0 OK\n Avg bus bandwidth : 9.5\n"
    found = nccl_tests.parse_tables(text)
    assert (found.devices, found.hosts, found.average_busbw, found.out_of_bounds) == (1, ("n1",), 9.5, (0, "OK"))


def test_ibstat_of_one_port_and_of_another_kind_of_adapter() -> None:
    text = "CA: 'mlx5_4'\nPort 1:\nState: Active\nPhysical state: LinkUp\nRate: 400\n"
    text += "  iWARP RNIC 'irdma0'\n\tiWARP RNIC type: X\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Disabled\n"
    assert [(one.device, one.up) for one in infiniband.parse_ibstat(text)] == [("mlx5_4", True), ("irdma0", False)]

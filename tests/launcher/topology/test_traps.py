"""One small text for each trap."""

from __future__ import annotations

import pytest

from launcher.topology import HostTopology
from launcher.topology.parse import parse_topology
from launcher.topology.split import split_hosts


def kinds(found: HostTopology) -> dict[str, str]:
    return {f"{link.a}-{link.b}": link.printed for link in found.links}


def test_contradicting_ends_are_a_gap_and_no_link() -> None:
    found = parse_topology("\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV4\tSYS\nGPU1\tNV2\tX\tSYS\nGPU2\tSYS\tSYS\tX\n")
    assert kinds(found) == {"GPU0-GPU2": "SYS", "GPU1-GPU2": "SYS"}
    assert any("GPU0-GPU1: NV4 from one end, NV2 from the other" in gap for gap in found.gaps)


def test_a_row_that_lost_a_cell_is_not_read() -> None:
    text = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\tX\tNV4\tSYS\t0-3\nGPU1\tX\tSYS\t0-3\nGPU2\tSYS\tSYS\tX\t4-7\n"
    found = parse_topology(text)
    assert kinds(found) == {"GPU0-GPU1": "NV4", "GPU0-GPU2": "SYS", "GPU1-GPU2": "SYS"}
    assert any("row GPU1 is cut or shifted" in gap for gap in found.gaps)


def test_a_missing_header_is_inferred_from_the_rows() -> None:
    found = parse_topology("GPU0\tX\tNV4\tSYS\nGPU1\tNV4\tX\tSYS\nGPU2\tSYS\tSYS\tX\n")
    assert kinds(found) == {"GPU0-GPU1": "NV4", "GPU0-GPU2": "SYS", "GPU1-GPU2": "SYS"}
    assert any("the header is missing" in gap for gap in found.gaps)


def test_a_cut_count_is_not_believed() -> None:
    found = parse_topology("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV1")
    assert found.links == ()
    assert any("may be cut" in gap for gap in found.gaps)


def test_a_glued_header_is_taken_apart() -> None:
    text = "    GPU0GPU1mlx5_0mlx5_1\tCPU Affinity\nGPU0\tX\tSOC\tPIX\tSOC\t0-3\nGPU1\tSOC\tX\tSOC\tPIX\t4-7\n"
    assert kinds(parse_topology(text))["GPU0-mlx5_0"] == "PIX"


def test_glued_cells_are_taken_apart_and_ambiguous_ones_left_out() -> None:
    whole = parse_topology("GPU0 GPU1 GPU2 CPU Affinity\nGPU0 XNV4PHB 0-3\nGPU1 NV4XPHB 0-3\nGPU2 PHBPHBX 0-3\n")
    assert kinds(whole) == {"GPU0-GPU1": "NV4", "GPU0-GPU2": "PHB", "GPU1-GPU2": "PHB"}
    assert parse_topology("GPU0 GPU1 CPU Affinity\nGPU0 XNV10-3\n").links == ()


def test_renamed_nics_are_nics_and_the_legend_names_the_others() -> None:
    text = (
        "\tGPU0\tNIC0\tibp12s0\tCPU Affinity\nGPU0\tX\tPIX\tSYS\t0-3\nNIC0\tPIX\tX\tSYS\nibp12s0\tSYS\tSYS\tX\n"
        "\nNIC Legend:\n\n  NIC0: rocep8s0\n"
    )
    found = parse_topology(text)
    assert [(nic.name, nic.device) for nic in found.nics] == [("NIC0", "rocep8s0"), ("ibp12s0", "ibp12s0")]
    assert [nic.label for nic in found.near_nics(found.devices[0])] == ["rocep8s0"]


def test_blank_cpu_columns_stay_blank_with_tabs() -> None:
    text = (
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\tX\tNV4\t\t0\t\tN/A\nGPU1\tNV4\tX\t7\t1\t\tN/A\n"
    )
    found = parse_topology(text)
    assert [device.numa for device in found.devices] == [0, 1]
    assert [device.cpus for device in found.devices] == [None, None]


def test_a_numa_range_is_no_node() -> None:
    found = parse_topology("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\tX\t0-63\t0-1\n")
    assert found.devices[0].numa is None
    assert any("several are given" in gap for gap in found.gaps)


@pytest.mark.parametrize("kind", ["PHB", "SYS"])
def test_one_path_everywhere_is_unknown_not_equal(kind: str) -> None:
    names = [f"GPU{i}" for i in range(4)]
    rows = [" ".join([a, *("X" if a == b else kind for b in names), "0-31", "0"]) for a in names]
    assert parse_topology("\n".join([" ".join([*names, "CPU Affinity", "NUMA Affinity"]), *rows])).opaque


def test_sys_between_numa_nodes_is_what_it_says() -> None:
    names = [f"GPU{i}" for i in range(4)]
    rows = [" ".join([a, *("X" if a == b else "SYS" for b in names), f"{i}-{i}", str(i)]) for i, a in enumerate(names)]
    assert not parse_topology("\n".join([" ".join([*names, "CPU Affinity", "NUMA Affinity"]), *rows])).opaque


def test_matrix_and_query_are_joined_by_index_and_disagreements_are_gaps() -> None:
    text = (
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tNV4\t0-3\nGPU1\tNV4\tX\t0-3\n\n"
        "index, uuid, pci.bus_id, name\n0, GPU-a, 00000000:0A:00.0, H100\n2, GPU-c, 00000000:0C:00.0, H100\n"
    )
    found = parse_topology(text)
    assert [(d.index, d.uuid, d.bdf) for d in found.devices] == [
        (0, "GPU-a", "0000:0a:00.0"),
        (1, None, None),
        (2, "GPU-c", "0000:0c:00.0"),
    ]
    assert any("the matrix does not" in gap for gap in found.gaps) and any(
        "the query does not" in g for g in found.gaps
    )


def test_lines_led_by_host_names_are_several_hosts() -> None:
    text = "".join(f"n{i}: \tGPU0\tGPU1\nn{i}: GPU0\tX\tNV{i}\nn{i}: GPU1\tNV{i}\tX\n" for i in (1, 2))
    hosts = [parse_topology(part, name) for name, part in split_hosts(text, "file")]
    assert [(host.host, *kinds(host).values()) for host in hosts] == [("n1", "NV1"), ("n2", "NV2")]


def test_two_contradicting_matrices_of_one_host() -> None:
    one = "\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n"
    found = parse_topology(one + "\n" + one.replace("NV4", "SYS"))
    assert found.links == () and any("in another" in gap for gap in found.gaps)


PAIR = {"GPU0-GPU1": "NV4", "GPU0-GPU2": "SYS", "GPU1-GPU2": "SYS"}


@pytest.mark.parametrize(
    "text",
    [
        "//\tGPU0\tGPU1\tGPU2\n//GPU0\tX\tNV4\tSYS\n//GPU1\tNV4\tX\tSYS\n//GPU2\tSYS\tSYS\tX\n",
        "GPU0GPU1GPU2CPU AffinityNUMA Affinity\nGPU0XNV4SYS0-30\nGPU1NV4XSYS0-30\nGPU2SYSSYSX4-71\n",
        ",GPU0,GPU1,GPU2,CPU Affinity\nGPU0,X,NV4,SYS,0-3\nGPU1,NV4,X,SYS,0-3\nGPU2,SYS,SYS,X,4-7\n",
        '["\\tGPU0\\tGPU1\\tGPU2",\n"GPU0\\tX\\tNV4\\tSYS",\n"GPU1\\tNV4\\tX\\tSYS",\n"GPU2\\tSYS\\tSYS\\tX"\n]\n',
        "<table><tr><th></th><th>GPU0</th><th>GPU1</th><th>GPU2</th></tr><tr><td>GPU0</td><td>X</td><td>NV4</td>"
        "<td>SYS</td></tr><tr><td>GPU1</td><td>NV4</td><td>X</td><td>SYS</td></tr><tr><td>GPU2</td><td>SYS</td>"
        "<td>SYS</td><td>X</td></tr></table>",
    ],
    ids=["a comment", "all tabs lost", "commas", "list of lines", "table of a page"],
)
def test_pasted_forms(text: str) -> None:
    assert kinds(parse_topology(text)) == PAIR


def test_a_quoted_list_of_cpus_survives_commas_and_a_bare_one_is_left_out() -> None:
    rows = ",GPU0,GPU1,CPU Affinity,NUMA Affinity\nGPU0,X,NV4,{0},0\nGPU1,NV4,X,{0},0\n"
    assert [d.cpus for d in parse_topology(rows.format('"0-3,8-11"')).devices] == ["0-3,8-11"] * 2
    assert [d.cpus for d in parse_topology(rows.format("0-3,8-11")).devices] == [None] * 2


def test_a_list_of_cpus_that_a_terminal_wrapped() -> None:
    rows = "  GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X NV4 {}\nGPU1 NV4 X {}\n"
    assert [d.cpus for d in parse_topology(rows.format("0-15\n,32-47 0", "0-15 \n0")).devices] == ["0-15,32-47", "0-15"]
    assert parse_topology(rows.format("16-3\n1", "0-3 0")).devices[0].cpus is None  # 16-31, or 16-3 and NUMA 1


def test_peer_access_alone_tells_no_links() -> None:
    found = parse_topology("\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n\nLegend:\n  OK = Status Ok\n")
    assert found.links == () and found.p2p and any("only peer access" in gap for gap in found.gaps)


def test_ascend_labels_by_physical_id() -> None:
    text = "         Phy-ID0  Phy-ID1  CPU Affinity\nPhy-ID0  X        SIO      0-23\nPhy-ID1  SIO      X        0-23\n"
    assert [device.index for device in parse_topology(text).devices] == [0, 1]


ONE = "\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n"


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (f"---------------\nn[1-2] (2)\n---------------\n{ONE}---------------\nn3\n---------------\n{ONE}", "n1 n2 n3"),
        (f"n1 | CHANGED | rc=0 >>\n{ONE}n2 | CHANGED | rc=0 >>\n{ONE}", "n1 n2"),
        (f"[1] 10:00:00 [SUCCESS] n2\n{ONE}[2] 10:00:01 [SUCCESS] n1\n{ONE}", "n2 n1"),
        (f"==> n1.txt <==\n{ONE}\n==> n2.txt <==\n{ONE}", "n1.txt n2.txt"),
        (f"============ ROCm System Management Interface ============\n{ONE}", "file"),
    ],
)
def test_hosts_below_their_names(text: str, hosts: str) -> None:
    found = [parse_topology(part, name) for name, part in split_hosts(text, "file")]
    assert [host.host for host in found] == hosts.split()
    assert all(kinds(host) == {"GPU0-GPU1": "NV4"} for host in found)


def test_kinds_that_nobody_knows_are_gaps_and_lose_no_device() -> None:
    names = [f"MLU{i}" for i in range(4)]
    rows = ["\t".join([a, *("X" if a == b else "MLULINK" for b in names), "0-15"]) for a in names]
    found = parse_topology("\t".join(["", *names, "CPU Affinity"]) + "\n" + "\n".join(rows))
    assert [device.index for device in found.devices] == [0, 1, 2, 3] and found.links == ()
    assert any("MLULINK names no link" in gap for gap in found.gaps)


def test_where_a_text_ends_nothing_is_known_of_the_last_rows_cpus() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNV4\t0-39\t0\nGPU1\tNV4\tX\t40-7"
    assert [(device.cpus, device.numa) for device in parse_topology(text).devices] == [("0-39", 0), (None, None)]


def test_a_list_of_cpus_that_is_glued_to_the_next_column_is_not_believed() -> None:
    text = "GPU0GPU1CPU AffinityNUMA Affinity\nGPU0XSYS0-310\nGPU1SYSX32-631\n"
    found = parse_topology(text)
    assert kinds(found) == {"GPU0-GPU1": "SYS"} and [device.cpus for device in found.devices] == [None, None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\tGPU0\tGPU1\tNIC\nGPU0\tX\tNV4\tPIX\nGPU1\tNV4\tX\tSYS\nNIC0\tPIX\tSYS\tX\n", "NIC0: with a row"),
        ("\tGPU0\tGPU1\nGPU0\tX\tNV4\tPIX\nGPU1\tNV4\tX\tSYS\n", "GPU1: the header may be cut there"),
        ("ACCESS TABLE:\n\tGPU0\tGPU1\nGPU0\tENABLED\tENABLED\nGPU1\tENABLED\tENABLED\n", "no matrix shows them"),
        ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tP", "GPU1: in the header, but without a row"),
    ],
)
def test_what_is_cut_away_is_a_gap(text: str, words: str) -> None:
    assert any(words in gap for gap in parse_topology(text).gaps), parse_topology(text).gaps


def square(labels: str, cells: str, titles: str = "", tail: str = "") -> str:
    """A matrix from its labels and its rows of cells, rows divided by `/`, with the same tail in each."""
    names = labels.split()
    rows = [f"{name} {row.strip()} {tail}" for name, row in zip(names, cells.split("/"), strict=True)]
    return "\n".join([f"  {labels} {titles}", *rows])


@pytest.mark.parametrize(
    ("labels", "cells", "components"),
    [
        ("NPU0 NPU1 NPU2", "X UB UB / UB X UB / UB UB X", ((0, 1, 2),)),
        ("GPU0 GPU1 GPU2", "X MT2 SYS / MT2 X SYS / SYS SYS X", ((0, 1), (2,))),
        ("MLU0 MLU1 MLU2 MLU3", "X MLK MUL CPU / MLK X CPU MUL / MUL CPU X MLK / CPU MUL MLK X", ((0, 1), (2, 3))),
        ("HCU0 HCU1 HCU2", "S XYZ PCIE / XYZ S PCIE / PCIE PCIE S", ((0,), (1,), (2,))),
    ],
)
def test_links_of_other_makers(labels: str, cells: str, components: tuple[tuple[int, ...], ...]) -> None:
    assert parse_topology(square(labels, cells, "CPU Affinity", "0-15")).components == components


def test_a_header_that_lost_a_label_names_no_column_behind_its_last_sure_one() -> None:
    found = parse_topology(
        "  GPU0 GPU1 NIC0 NIC2 CPU Affinity\nGPU0 X NV4 PIX NODE SYS 0-3\nGPU1 NV4 X NODE PIX SYS 4-7\n"
    )
    assert kinds(found) == {"GPU0-GPU1": "NV4"} and any("lacks a column" in gap for gap in found.gaps)
    assert [device.cpus for device in found.devices] == [None, None]


def test_an_ellipsis_for_cells_ends_a_row() -> None:
    found = parse_topology("  GPU0 GPU1 GPU2 GPU3 CPU Affinity\nGPU0 X NV4 ... SYS 0-3\nGPU1 NV4 X ... SYS 0-3\n...\n")
    assert kinds(found) == {"GPU0-GPU1": "NV4"} and any("ends after 2 of 4 columns" in gap for gap in found.gaps)


def test_a_shortened_title_is_one_and_an_old_rocm_line_tells_the_node() -> None:
    text = square("GPU0 GPU1", "X NV4 / NV4 X", "CPU Affinity NUMA", "0-3 1")
    assert [(device.cpus, device.numa) for device in parse_topology(text).devices] == [("0-3", 1)] * 2
    text = (
        square("GPU0 GPU1", "0 XGMI / XGMI 0") + "\nGPU 0 : (Topology) Numa Node: 0\nGPU 1 : (Topology) Numa Node: 3\n"
    )
    assert [device.numa for device in parse_topology(text).devices] == [0, 3]


def test_a_last_row_that_ends_in_its_last_column_is_whole() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\tX\tNV4\t\t0\t\tN/A\nGPU1\tNV4\tX\t\t1\t\tN/A"
    assert [device.numa for device in parse_topology(text).devices] == [0, 1]


def test_devices_by_that_name() -> None:
    text = "| X | Device 0 | Device 1 |\n|---|---|---|\n| Device 0 | X | NODE |\n| Device 1 | NODE | X |\n"
    found = parse_topology(text)
    assert [device.index for device in found.devices] == [0, 1] and found.nics == ()
    assert kinds(found) == {"Device 0-Device 1": "NODE"}


def test_a_last_label_without_a_row_is_whole_where_it_counts_on() -> None:
    found = parse_topology("| GPU0 | GPU1 | NIC0 | NIC1 | |\n|---|---|---|---|---|\n| GPU0 | X | NV4 | PIX | SYS |\n")
    assert kinds(found)["GPU0-NIC1"] == "SYS" and not any("may be cut" in gap for gap in found.gaps)


def test_a_legend_with_a_header_written_over_names_nothing() -> None:
    matrix = square("GPU0 NIC0 NIC1 NIC2", "X PIX SYS SYS / PIX X SYS SYS / SYS SYS X SYS / SYS SYS SYS X")
    text = f"{matrix}\n\nNIC Legend:\n  NIC0:   NIC2   CPU Affinity\n  NIC1: MA ID\n  NIC2: mlx5_7 (up)\n"
    assert [nic.device for nic in parse_topology(text).nics] == [None, None, "mlx5_7"]


@pytest.mark.parametrize("tail", ["9" * 5000, "²", "0-3 ²"])
def test_numbers_that_are_none_break_nothing(tail: str) -> None:
    assert kinds(parse_topology(square("GPU0 GPU1", "X NV4 / NV4 X", "NUMA Affinity", tail))) == {"GPU0-GPU1": "NV4"}

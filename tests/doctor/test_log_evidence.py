"""Readers of logs, RAS and node outputs: facts of processes, bounded work, hostile and random input."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.evidence import EvidenceSet
from doctor.evidence.log_lines import MESSAGE_LIMIT, clean, parse_line, seconds
from doctor.evidence.logs import LogEvent, LogFile, parse
from doctor.evidence.nccl_log import NcclProcess
from doctor.evidence.ras import is_ras, parse_ras
from doctor.evidence.signatures import any_of, signatures
from doctor.evidence.source import Source
from doctor.evidence.system import read_reports
from doctor.evidence.watchdog import NO_NUMBER, GroupProgress, WorkTimeout
from doctor.report.nccl import explain
from doctor.rules.meanings import MEANINGS
from launcher.common.kernel_lines import parse_kernel

T = TypeVar("T")
QUEUE_LINE = b"h:1:2 [0] a.cc:1 NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory\n"


def records(tmp_path: Path, text: bytes | str) -> tuple[list[object], Source]:
    path = tmp_path / "job.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    source = Source(path.name, path)
    return list(parse(source)), source


def of(found: Iterable[object], kind: type[T]) -> list[T]:
    return [one for one in found if isinstance(one, kind)]


def test_facts_of_a_process(tmp_path: Path) -> None:
    lines = [
        "NCCL version 2.24.3+cuda12.6",
        "Bootstrap: Using ib0:10.0.0.7<0>",
        "NCCL_IB_TIMEOUT set by environment to 22.",
        "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.0.7<0>",
        "Using network IB",
        "ncclCommInitRank comm 0x55a0 rank 9 nranks 16 cudaDev 1 nvmlDev 1 busId 2000 commId 0x77aa - Init START",
        "Channel 00/16 :    0   1   9   8",
        "Channel 00/0 : 9[1] -> 8[0] via P2P/CUMEM/read",
        "Channel 01/0 : 9[1] -> 8[0] via P2P/CUMEM/read",
        "Channel 00/0 : 1[1] -> 9[1] [receive] via NET/IB/1/GDRDMA",
        "Connected all rings, use ring PXN 0 GDR 1",
        "NVLS multicast support is available on dev 1 (NVLS_NCHANNELS 16)",
        "ncclCommInitRank comm 0x55a0 rank 9 nranks 16 cudaDev 1 nvmlDev 1 busId 2000 commId 0x77aa - Init COMPLETE",
        "AllReduce: opCount 1f sendbuff 0x1 recvbuff 0x2 count 100 datatype 7 op 0 comm 0x55a0 [nranks=16]",
    ]
    found, _ = records(tmp_path, "".join(f"h7:411:438 [1] NCCL INFO {line}\n" for line in lines))
    (process,) = of(found, NcclProcess)
    assert (process.host, process.pid, process.rank, process.version) == ("h7", 411, 9, "2.24.3")
    assert (process.bootstrap, process.network, process.adapters) == ("ib0:10.0.0.7", "IB", ("mlx5_0", "mlx5_1"))
    assert process.settings == {"NCCL_IB_TIMEOUT": "22"} and process.nvls and process.connected
    (edge,) = process.edges
    assert (edge.source, edge.target, edge.receives, edge.nic, edge.gdr) == (1, 9, True, "1", True)
    (comm,) = process.comms
    assert (comm.size, comm.complete, comm.bus) == (16, True, "2000")
    assert process.rings == ((0, 1, 9, 8),) and process.calls == {"0x55a0": (31, "AllReduce", 100)}
    (file,) = of(found, LogFile)
    assert file.paths == {"P2P/CUMEM/read": 2} and file.lines == len(lines)
    topics = {one.topic for one in explain(EvidenceSet(found))}
    assert {"version", "network", "rings", "NVLS", "inside nodes", "communicators"} <= topics


@pytest.mark.parametrize(
    ("line", "group"),
    [
        ("[rank4]:[E318 07:39:53.79 ProcessGroupNCCL.cpp:616] [Rank 4] ", ""),
        ("[rank4]:[E318 07:39:53.79 ProcessGroupNCCL.cpp:616] [PG 1 Rank 4] ", "1"),
        ("[rank4]:[E318 07:39:53.79 ProcessGroupNCCL.cpp:616] [PG 0 (default_pg) Rank 4] ", "default_pg"),
        ("[rank4]:[E318 07:39:53.79 ProcessGroupNCCL.cpp:616] [PG ID 2 PG GUID 9 Rank 4] ", "9"),
        ("[rank4]:[E318 07:39:53.79 ProcessGroupNCCL.cpp:616] [PG ID 2 PG GUID 9(tp) Rank 4] ", "tp"),
        ("[E318 07:39:53.79 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID  Rank 4] ", "0"),
    ],
)
def test_groups_of_watchdog_lines(tmp_path: Path, line: str, group: str) -> None:
    work = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=61, OpType=ALLREDUCE, NumelIn=5, NumelOut=5, "
    text = f"{line}{work}Timeout(ms)=600000) ran for 600086 milliseconds before timing out.\n"
    text += f"{line}Timeout at NCCL work: 61, last enqueued NCCL work: 66, last completed NCCL work: 60.\n"
    found, _ = records(tmp_path, text)
    (timeout,), (progress,) = of(found, WorkTimeout), of(found, GroupProgress)
    assert (timeout.rank, timeout.group, timeout.seq, timeout.op, timeout.numel_in) == (4, group, 61, "ALLREDUCE", 5)
    assert (timeout.timeout_ms, timeout.ran_ms) == (600_000, 600_086)
    assert (progress.enqueued, progress.completed, progress.failed_at) == (66, 60, 61)


def test_watchdog_lines_without_numbers(tmp_path: Path) -> None:
    work = "WorkNCCL(OpType=ALLREDUCE, TensorShape=[2, 3], Timeout(ms)=1800000) ran for 1808426 milliseconds before"
    text = f"[E ProcessGroupNCCL.cpp:566] [Rank 2] Watchdog caught collective operation timeout: {work}\n"
    found, _ = records(tmp_path, text)
    (timeout,) = of(found, WorkTimeout)
    assert (timeout.rank, timeout.seq, timeout.numel_in, timeout.call) == (2, NO_NUMBER, 6, "ALLREDUCE")


def test_times_of_lines() -> None:
    assert seconds("2026-02-18T10:28:25.500Z") == seconds("2026-02-18 11:28:25,500+01:00")
    assert seconds("no time") is None
    line = parse_line("2026-02-18T10:48:25.681Z [rank7]:[E218 10:48:25.03 ProcessGroupNCCL.cpp:632] [Rank 7] text")
    assert (line.origin.rank, line.level, line.text) == (7, "E", "[Rank 7] text")


def test_equal_events_are_counted_not_kept(tmp_path: Path) -> None:
    found, _ = records(tmp_path, QUEUE_LINE * 500)
    (event,) = of(found, LogEvent)
    assert (event.count, event.where) == (500, "job.log:1")


def test_a_sparse_file_is_read_where_it_holds_data(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    with path.open("wb") as stream:
        stream.seek(10 << 30)
        stream.write(b"\n" + QUEUE_LINE)
    assert [event.kind for event in of(parse(Source(path.name, path)), LogEvent)] == ["verbs_failed"]


def test_a_huge_line_is_cut_and_a_gap_says_so(tmp_path: Path) -> None:
    found, source = records(tmp_path, b"x" * (8 << 20) + b"\n" + b"\0" * 70_000 + b"\n" + QUEUE_LINE)
    assert len(of(found, LogEvent)) == 1
    assert any("longer than" in str(gap) for gap in source.gaps)


def test_a_log_that_is_only_a_huge_line_is_never_healthy(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(b"h:1:2 [0] NCCL INFO Connected all rings\n" + b"y" * (2 << 20))
    assert diagnose(discover([tmp_path])).answer == "unknown"


def test_patterns_look_at_a_bounded_part_of_a_line() -> None:
    assert len(parse_line("Got completion from peer " * 10_000).text) <= MESSAGE_LIMIT
    assert clean("a\x1b[31mb\x1b]0;t\x07c\x00") == "abc"


def test_every_kind_has_a_signature_that_compiles() -> None:
    kinds = {signature.kind for signature in signatures()}
    assert set(MEANINGS) <= kinds
    assert all(signature.word for signature in signatures())
    assert any_of({"abc", "abd", "x"}).search("zzabd") and not any_of({"abc", "x"}).search("ab")


TEXTS = st.one_of(
    st.binary(max_size=2_000),
    st.lists(st.sampled_from([one.word for one in signatures()] + ["<", ">", "(", "=1", "\n", " rank 3 ", ": "])).map(
        lambda parts: " ".join(parts).encode()
    ),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS)
def test_random_text_never_breaks_a_reader(tmp_path: Path, text: bytes) -> None:
    found, source = records(tmp_path, text)
    diagnose(EvidenceSet(found, source.gaps))
    plain = text.decode(errors="replace")
    list(parse_kernel(plain.splitlines()))
    for read in (lambda: list(read_reports(plain, "x")), lambda: parse_ras(plain, "x")):
        try:
            read()
        except ValueError:
            continue


def test_ras_is_recognised_by_content() -> None:
    assert is_ras(b"Communicators... (0.00s)\n") and not is_ras(b"epoch 1 loss 2.0\n")

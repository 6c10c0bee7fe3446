"""What is fuzzed, and with which texts it begins: ours, and those of `../shared` where that is beside the checkout."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from doctor.diagnose import diagnose
from doctor.discover import read_source
from doctor.evidence import EvidenceSet, Source
from doctor.report.html import render as html
from doctor.report.terminal import render as terminal
from doctor.rules import RULE_FAILED
from launcher.common.progress import parse_record
from launcher.common.progress.grammar import read_line
from launcher.errors import DlaunchError
from launcher.hostfile import parse_hostfile
from launcher.hosts.names import expand
from launcher.inventory import load_inventory
from launcher.slurm import status, text, values
from launcher.slurm.refusals import refusal
from launcher.slurm.topology import parse_topology as parse_slurm_topology
from launcher.topology.parse import parse_topology
from tests.doctor.dumps import Op, recorders, write_all
from tests.doctor.test_log_meanings import cases
from tests.launcher.topology.printed import LEGEND, random_machine, rows_of, tabbed

CORPUS = Path(os.environ.get("DLAUNCH_CORPUS", Path(__file__).parents[3] / "shared"))
NAMES = ("job.out", "rank3.txt", "nccl_trace_rank_0", "dmesg.log", "progress.jsonl")
SEED_BYTES = 20_000  # larger ones slow the search down
_SCRATCH = Path(tempfile.mkdtemp(prefix="dlaunch-fuzz-"))
atexit.register(shutil.rmtree, _SCRATCH, ignore_errors=True)


@dataclass(frozen=True)
class Target:
    """`run` takes any bytes; whatever it raises is a defect."""

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]


def whole_doctor(data: bytes) -> None:
    """From a file to reports on what it holds; its first byte chooses the file's name."""
    path = _SCRATCH / "evidence"
    path.write_bytes(data[1:])
    name = NAMES[data[0] % len(NAMES)] if data else NAMES[0]
    evidence = EvidenceSet(*read_source(Source(name, path)))
    verdict = diagnose(evidence)
    assert not any(finding.code == RULE_FAILED for finding in verdict.findings), verdict
    terminal(verdict)
    html(verdict, evidence)


def topology(data: bytes) -> None:
    parse_topology(data.decode(errors="replace"))


def slurm(data: bytes) -> None:
    """What Slurm prints for people; its JSON has a schema that a damaged text would not pass."""
    said = data.decode(errors="replace")
    for read in (status.jobs_from_scontrol, status.nodes_from_scontrol, status.jobs_from_queue,
                 status.jobs_from_accounting, parse_slurm_topology, refusal, text.table, text.tres, text.help_options,
                 text.split_reason, values.generic_resources, values.duration, values.exit_code):  # fmt: skip
        with suppress(DlaunchError):
            read(said)  # type: ignore[operator]  # each takes a text


def progress(data: bytes) -> None:
    for line in data.decode(errors="replace").splitlines():
        read_line(line)
        parse_record(line)


def configuration(data: bytes) -> None:
    """What a user writes: a wrong file is an error that says so, never another one."""
    path = _SCRATCH / "inventory.yaml"
    path.write_bytes(data)
    said = data.decode(errors="replace")
    for read in (lambda: load_inventory(path), lambda: parse_hostfile(said, "hosts"), lambda: expand(said[:200])):
        with suppress(DlaunchError):
            read()  # type: ignore[no-untyped-call]


def _doctor_seeds() -> Iterator[bytes]:
    for _, _, block in cases():
        yield b"\0" + block.encode()
    ranks = recorders(2)
    ranks[0].run(*[Op()] * 3)
    ranks[0].wait(Op())
    write_all(ranks, _SCRATCH)
    for dump in _SCRATCH.glob("nccl_trace_rank_*"):
        yield b"\2" + dump.read_bytes()
    yield from (b"\0" + seed for seed in _corpus("cases", "system"))


def _topology_seeds() -> Iterator[bytes]:
    for seed in range(8):
        machine = random_machine(seed, 2 + seed % 8, seed % 4)
        yield (tabbed(rows_of(machine, "new", machine.labels, machine.labels)) + LEGEND).encode()
    yield from _corpus("topo")


def _slurm_seeds() -> Iterator[bytes]:
    yield b"JobId=7 JobName=a JobState=PENDING Reason=Resources NumNodes=2 NodeList=n[1-4,7]\n"
    yield b"NodeName=n1 State=IDLE+DRAIN Gres=gpu:a100:4(S:0-1) Reason=bad [root@2026-01-01T00:00:00]\n"
    yield b"SwitchName=s0 Level=1 LinkSpeed=1 Switches=s[1-2]\nSwitchName=s1 Level=0 Nodes=n[1-4]\n"
    yield b"sbatch: error: invalid partition specified: gpuu\nsbatch: error: Batch job submission failed\n"
    yield from _corpus("slurm")


def _progress_seeds() -> Iterator[bytes]:
    yield b"step 10/100  loss 2.5  tokens/s 1,200  grad_norm 0.4\n"
    yield b"Epoch 1:  40%|####      | 4/10 [00:02<00:03, 1.9it/s, loss=2.1]\n"
    yield b'{"step": 3, "time": 1.5, "step_s": 0.1, "loss": NaN}\n'
    yield from _corpus("train-logs")


def _configuration_seeds() -> Iterator[bytes]:
    yield b"default: a\nclusters:\n  a: {kind: ssh, hosts: 'n[1-4]', env: {A: b}, spares: [n4]}\n"
    yield b"clusters:\n  s:\n    kind: slurm\n    partition: gpu\n    time: 1-00:00:00\n    sbatch: {exclusive: true}\n"
    yield b"n1 slots=8\nn[2-4]:8\n# a host\nn5\n"


def _corpus(*folders: str) -> Iterator[bytes]:
    for folder in folders:
        for path in sorted((CORPUS / folder).rglob("*")) if CORPUS.is_dir() else ():
            if path.is_file() and path.stat().st_size <= SEED_BYTES:
                yield path.read_bytes()


TARGETS: Mapping[str, Target] = {
    "doctor": Target(whole_doctor, _doctor_seeds),
    "topology": Target(topology, _topology_seeds),
    "slurm": Target(slurm, _slurm_seeds),
    "progress": Target(progress, _progress_seeds),
    "configuration": Target(configuration, _configuration_seeds),
}

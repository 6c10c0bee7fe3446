"""A live or ended job → a bundle: every node looks at its own ranks at once; a host that fails delays none."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from doctor.archives import unpack
from doctor.node.gather import Request, gather
from doctor.node.stacks import find_py_spy
from launcher.errors import CannotActError, InputError
from launcher.hosts.protocol import Host, HostError, on_all
from launcher.jobs.record import ENDED, JobRecord
from launcher.jobs.store import StoredJob, find_job
from launcher.render import NodePlan

MARGIN_S = 30.0


@dataclass(frozen=True)
class Options:
    """How to look. One sample is enough for a job that has ended."""

    samples: int = 2
    interval_s: float = 3.0
    full: bool = False
    native: bool = False
    attempt: int | None = None  # one that has ended: what it left; the newest where None


@dataclass(frozen=True)
class Collected:
    """A job by its id, its hosts, and what could not be collected, one line each."""

    job: str
    hosts: Sequence[str]
    missing: Sequence[str]


def collect_named(name: str, target: Path, options: Options) -> Collected:
    """The bundle of the job that `name` means: ours, or by its Slurm id one of others.

    Raises InputError for a job that nobody knows, CannotActError where Slurm cannot be asked.
    """
    try:
        job = find_job(name)
    except InputError:
        if not (name.startswith("slurm:") or (name.isdigit() and shutil.which("scontrol"))):
            raise
        return collect_foreign(name, target, options)
    if options.attempt is not None and options.attempt > job.record.attempt:
        last = job.record.attempt
        name = job.record.job
        help = f"ddoctor diagnose {name} --attempt {last}"
        raise InputError(f"{name} has made attempts 0 to {last}", where="--attempt", help=help)
    if options.attempt not in (None, job.record.attempt):
        options = replace(options, samples=0)
    elif job.record.state in ENDED:
        options = replace(options, samples=1)
    return Collected(job.record.job, [node.host for node in job.record.nodes], collect(job, target, options))


def collect(job: StoredJob, target: Path, options: Options | None = None) -> list[str]:
    """Fill `target` with the bundle of a job; returns the hosts that gave nothing, with the reason of each."""
    options = options or Options(samples=1 if job.record.state in ENDED else 2)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(job.paths.record, target / "job.json")
    if job.record.kind == "slurm" and job.record.state in ENDED:
        failures = _read_here(job.record, target, options)
    else:
        failures = _look_there(job.record, target, options)
    gaps = [(f"host {name}", why) for name, why in failures.items()]
    (target / "gaps.json").write_text(json.dumps({"dlaunch_gaps": gaps}))
    return [f"{name}: {why}" for name, why in failures.items()]


def _look_there(record: JobRecord, target: Path, options: Options) -> dict[str, str]:
    """Every host looks at its ranks; returns why some gave nothing."""
    hosts, failures = reach(record)
    answers = on_all(list(hosts.values()), lambda host: _look(host, record, options))
    for host in hosts.values():
        host.close()
    for name, answer in answers.items():
        if isinstance(answer, bytes):
            _take(answer, target, name)
        else:
            failures[name] = str(answer)
    return failures


def _read_here(record: JobRecord, target: Path, options: Options) -> dict[str, str]:
    """What a job left in its shared directory, once no node belongs to it any more."""
    failures = {}
    for node in record.nodes:
        if Path(node.directory).is_dir():
            _take(gather(_request(node, record, replace(options, samples=0))), target, node.host)
        else:
            failures[node.host] = f"the job has left it, and {node.directory} is not on this machine"
    return failures


def collect_foreign(job_id: str, target: Path, options: Options) -> Collected:
    """The same for a running Slurm job that others started: stacks and states of its ranks, no dumps on demand."""
    from launcher.common.paths import home
    from launcher.hosts.bundle import shared_bundle
    from launcher.hosts.slurm import SlurmHost
    from launcher.jobs.slurm_foreign import PYTHON, ForeignRank, find_foreign
    from launcher.slurm.client import hostnames

    found = find_foreign(job_id)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    on_node: dict[str, list[ForeignRank]] = {}
    for rank in found.ranks:
        on_node.setdefault(rank.process.host, []).append(rank)
    folder = shared_bundle(home() / "node-side", with_psutil=True)
    py_spy = find_py_spy()

    def look(host: SlurmHost) -> bytes:
        node_rank = sorted(on_node).index(host.name)
        pids = tuple(rank.process.pid for rank in on_node[host.name])
        request = Request(
            node_rank=node_rank,
            pids=pids,
            samples=options.samples,
            interval_s=options.interval_s,
            native=options.native,
            py_spy=py_spy,
        )
        return ask_node(host, PYTHON, folder, request)

    answers = on_all([SlurmHost(node, found.status.id) for node in on_node], look)
    failures = {name: str(answer) for name, answer in answers.items() if isinstance(answer, HostError)}
    for name, answer in answers.items():
        if isinstance(answer, bytes):
            _take(answer, target, name)
    gaps = [(f"host {name}", why) for name, why in failures.items()] + [("host", why) for why in found.missing]
    (target / "gaps.json").write_text(json.dumps({"dlaunch_gaps": gaps}))
    nodes = hostnames(found.status.nodes) if found.status.nodes else []
    return Collected(found.job, nodes, [f"{where}: {why}" for where, why in gaps])


def reach(record: JobRecord) -> tuple[dict[str, Host], dict[str, str]]:
    """(hosts of a job's nodes that answer, why the others do not)."""
    from launcher.jobs.reach import connect_each

    answers = connect_each(list(dict.fromkeys(node.host for node in record.nodes)), record.addresses)
    failures = {name: answer.message for name, answer in answers.items() if isinstance(answer, HostError)}
    return {name: answer for name, answer in answers.items() if not isinstance(answer, HostError)}, failures


def _look(host: Host, record: JobRecord, options: Options) -> bytes | str:
    """The archives of all nodes on `host`, joined; or why there is none."""
    from launcher.hosts.bundle import put_bundle

    nodes = [node for node in record.nodes if node.host == host.name]
    try:
        folder = put_bundle(host, nodes[0].python)
        py_spy = _py_spy(host, folder)
        requests = [_request(node, record, options, py_spy) for node in nodes]
        archives = [ask_node(host, nodes[0].python, folder, request) for request in requests]
    except CannotActError as error:
        return error.message
    return archives[0] if len(archives) == 1 else _joined(archives)


def _request(node: NodePlan, record: JobRecord, options: Options, py_spy: str = "") -> Request:
    ranks = tuple(rank.rank for rank in record.ranks if rank.node_rank == node.node_rank)
    attempt = record.attempt if options.attempt is None else options.attempt
    return Request(
        directory=node.directory,
        node_rank=node.node_rank,
        attempt=attempt,
        ranks=ranks,
        samples=options.samples,
        interval_s=options.interval_s,
        full=options.full,
        left_dumps=record.state != "succeeded" or attempt != record.attempt,
        native=options.native,
        py_spy=py_spy,
    )


def ask_node(host: Host, python: str, folder: str, request: Request) -> bytes:
    """Run our node side on a host; returns its .tar.gz. Raises CannotActError with its last words."""
    patience = request.samples * (request.interval_s + request.patience_s) + MARGIN_S
    done = host.run(
        [python, "-m", "doctor.node"],
        input=json.dumps(asdict(request)).encode(),
        env={"PYTHONPATH": folder},
        timeout=patience,
    )
    if done.status or not done.stdout:
        raise HostError(host.name, done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "no answer")
    return done.stdout


def _py_spy(host: Host, folder: str) -> str:
    """py-spy on the host; where there is none ours is laid beside the bundle (the platform is the same: see bundle)."""
    ours, there = find_py_spy(), f"{folder}.py-spy"
    look = f'command -v py-spy || {{ test -x "{there}" && echo "{there}"; }}'
    found = host.run(["sh", "-c", look]).text.strip()
    if not found and ours:
        host.write(there, Path(ours).read_bytes(), 0o700)
        found = there
    return found


def _joined(archives: Sequence[bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as out:
        for archive in archives:
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                for member in tar:
                    out.addfile(member, tar.extractfile(member))
    return buffer.getvalue()


def _take(archive: bytes, target: Path, name: str) -> None:
    """Unpack what a host sent, as carefully as any archive."""
    draft = target / f".{name.replace(os.sep, '_')}.tar.gz"
    draft.write_bytes(archive)
    unpack(draft, target)
    draft.unlink()

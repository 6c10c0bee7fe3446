"""A live or ended job → a bundle: every node looks at its own ranks at once; a host that fails delays none."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from doctor.archives import unpack
from doctor.node.gather import Request, gather
from doctor.node.stacks import find_py_spy
from launcher.errors import CannotActError, InputError
from launcher.hosts.protocol import Answers, Host, HostError, on_all
from launcher.jobs.record import ENDED, JobRecord
from launcher.jobs.store import StoredJob, find_job
from launcher.render import NodePlan

MARGIN_S = 30.0
Archives = Sequence[bytes]  # of a host, one for each node


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
    last = job.record.attempt
    if options.attempt is not None and options.attempt > last:
        help = f"ddoctor diagnose {job.record.job} --attempt {last}"
        raise InputError(f"{job.record.job} has made attempts 0 to {last}", where="--attempt", help=help)
    if options.attempt not in (None, last):
        options = replace(options, samples=0)
    elif job.record.state in ENDED:
        options = replace(options, samples=1)
    return collect(job, target, options)


def collect(job: StoredJob, target: Path, options: Options) -> Collected:
    """Fill `target` with the bundle of a job that we started."""
    record = job.record
    gone = record.kind == "slurm" and record.state in ENDED
    answers = _read_here(record, options) if gone else _look_there(record, options)
    found = bundled(target, record.job, [node.host for node in record.nodes], answers)
    shutil.copyfile(job.paths.record, target / "job.json")
    return found


def collect_foreign(job_id: str, target: Path, options: Options) -> Collected:
    """The same for a running Slurm job that others started: stacks and states of its ranks, no dumps on demand."""
    from launcher.common.paths import home
    from launcher.hosts.bundle import shared_bundle
    from launcher.hosts.slurm import SlurmHost
    from launcher.jobs.slurm_foreign import PYTHON, ForeignRank, find_foreign
    from launcher.slurm.client import hostnames

    found = find_foreign(job_id)
    on_node: dict[str, list[ForeignRank]] = {}
    for rank in found.ranks:
        on_node.setdefault(rank.process.host, []).append(rank)
    folder = shared_bundle(home() / "node-side", with_psutil=True)
    py_spy = find_py_spy()

    def look(host: SlurmHost) -> Archives:
        request = Request(
            node_rank=sorted(on_node).index(host.name),
            pids=tuple(rank.process.pid for rank in on_node[host.name]),
            samples=options.samples,
            interval_s=options.interval_s,
            native=options.native,
            py_spy=py_spy,
        )
        return [ask_node(host, PYTHON, folder, request)]

    answers = on_all([SlurmHost(node, found.status.id) for node in on_node], look)
    nodes = hostnames(found.status.nodes) if found.status.nodes else []
    return bundled(target, found.job, nodes, answers, found.missing)


def bundled(
    target: Path, job: str, hosts: Sequence[str], answers: Answers[Archives], unseen: Sequence[str] = ()
) -> Collected:
    """Unpack below `target` what the hosts sent, as carefully as any archive; what none sent stands in gaps.json."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    gaps = [(f"host {name}", why.removeprefix(f"{name}: ")) for name, why in answers.reasons.items()]
    for name, archives in answers.good.items():
        for archive in archives:
            with tempfile.NamedTemporaryFile(suffix=".tar.gz") as draft:
                draft.write(archive)
                draft.flush()
                gaps += [(f"host {name}", gap.why) for gap in unpack(Path(draft.name), target)]
    gaps += [("host", why) for why in unseen]
    (target / "gaps.json").write_text(json.dumps({"dlaunch_gaps": gaps}))
    return Collected(job, hosts, [f"{where}: {why}" for where, why in gaps])


def _read_here(record: JobRecord, options: Options) -> Answers[Archives]:
    """What a job left in its shared directory, once no node belongs to it any more."""
    answers = Answers[Archives]({}, {})
    for node in record.nodes:
        if Path(node.directory).is_dir():
            answers.good[node.host] = [gather(_request(node, record, replace(options, samples=0)))]
        else:
            why = f"the job has left it, and {node.directory} is not on this machine"
            answers.failed[node.host] = CannotActError(why)
    return answers


def _look_there(record: JobRecord, options: Options) -> Answers[Archives]:
    """Every host looks at its ranks."""
    from launcher.jobs.reach import connect_each

    reached = connect_each(list(dict.fromkeys(node.host for node in record.nodes)), record.addresses)
    answers = on_all(list(reached.good.values()), lambda host: _look(host, record, options))
    for host in reached.good.values():
        host.close()
    return Answers(answers.good, reached.failed | answers.failed)


def _look(host: Host, record: JobRecord, options: Options) -> Archives:
    """The archives of all nodes on `host`. Raises CannotActError."""
    from launcher.hosts.bundle import put_bundle

    nodes = [node for node in record.nodes if node.host == host.name]
    folder = put_bundle(host, nodes[0].python)
    py_spy = _py_spy(host, folder)
    return [ask_node(host, node.python, folder, _request(node, record, options, py_spy)) for node in nodes]


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
        raise HostError(host.name, done.last_words or "no answer")
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

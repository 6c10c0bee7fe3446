"""From a request to a job in Slurm's queue: planned by the shape of a node, since the nodes are not known yet."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.common.paths import JobPaths, jobs_root
from launcher.errors import CannotActError, DlaunchError, InputError, suggestion
from launcher.hosts.names import expand, fold
from launcher.jobs.prepare import Prepared, mask_settings, rank_records, settings_of
from launcher.jobs.reach import jobs_directory, python_of
from launcher.jobs.record import JobRecord, write_record
from launcher.jobs.request import RunRequest, build_spec, environments
from launcher.jobs.slurm_batch import entry_file, supervise
from launcher.jobs.store import StoredJob, append_event, new_job_id
from launcher.render import NodePlan, Rendezvous
from launcher.secrets import only_secrets
from launcher.slurm import client
from launcher.slurm.bad_nodes import BadNode, read_bad_nodes
from launcher.slurm.reasons import pending_reason
from launcher.slurm.refusals import refusal
from launcher.slurm.script import SUPERVISE, Script, batch_script, check_time, container_options, with_options
from launcher.slurm.values import generic_resources
from launcher.spec import JobSpec

if TYPE_CHECKING:
    import submitit

    from launcher.inventory import SlurmCluster

PYTHON = Path(__file__).with_name("slurm_python.py")
FIRST_LOOK_S = 1.5  # a request that can never start is mostly recognised by the scheduler's first pass


def prepare_slurm(request: RunRequest, name: str, cluster: SlurmCluster, file: str) -> Prepared:
    """Everything that can be known before the nodes are. Raises InputError."""
    cluster = with_options(cluster, request.sbatch)
    where = f"{file or 'inventory'}: {name}"
    spec = build_spec(request, cluster, [], devices_per_node(cluster))
    check_time(cluster, where)
    wanted, job = environments(request, cluster), new_job_id(spec.name)
    root = Path(jobs_directory(cluster)) / job
    nodes = [_unknown_node(cluster, spec, node_rank, root) for node_rank in range(spec.nodes)]
    settings = settings_of(cluster, wanted, nodes)
    record = JobRecord(
        job=job,
        name=spec.name,
        cluster=name,
        kind="slurm",
        state="pending",
        created=time.time(),
        spec=spec.to_json(),
        mesh=dict(spec.mesh.degrees),
        nodes=tuple(nodes),
        ranks=tuple(rank_records(spec, nodes)),
        inventory=file,
        settings=mask_settings(settings),
        reason="submitting",
    )
    bad = {node: why for node, why in read_bad_nodes(name, time.time()).items() if node not in named_nodes(cluster)}
    excluded = [*request.exclude, *([fold(bad)] if bad else [])]
    script = batch_script(cluster, spec, job, excluded)
    return Prepared(record, spec, settings, Rendezvous("NODE0", 0), exclusion_notes(bad), script)


def named_nodes(cluster: SlurmCluster) -> frozenset[str]:
    """The nodes that `nodelist` asks for by name: who names a node wants it."""
    names = cluster.nodelist or ""
    return frozenset() if "/" in names else frozenset(expand(names))  # with a slash it is a file


def exclusion_notes(bad: Mapping[str, BadNode]) -> list[str]:
    return [
        f"{node} is left out until {time.strftime('%d %b %H:%M', time.localtime(entry.until))}: {entry.reason}"
        for node, entry in bad.items()
    ]


def devices_per_node(cluster: SlurmCluster) -> int | None:
    """The GPUs that the cluster's entry asks for on each node; None where it asks for none."""
    for wish in (cluster.gpus_per_node, cluster.gres):
        if wish is None:
            continue
        if str(wish).isdigit():
            return int(wish) or None
        found = [resource for resource in generic_resources(str(wish)) if resource.count]
        gpus = [resource.count for resource in found if resource.name == "gpu" or wish is cluster.gpus_per_node]
        if gpus:
            return gpus[0]
    return None


def _unknown_node(cluster: SlurmCluster, spec: JobSpec, node_rank: int, root: Path) -> NodePlan:
    return NodePlan(
        node_rank=node_rank,
        host=f"NODE{node_rank}",
        directory=str(root),
        python=python_of(cluster),
        bundle=f"{root}/node-side",
        workdir=cluster.workdir or str(Path.cwd()),
        cpus=cluster.cpus_per_task or spec.nproc_per_node,
    )


def executor(prepared: Prepared, script: Script) -> submitit.SlurmExecutor:
    """submitit, told to run the supervisor in the batch script. Raises CannotActError where there is no Slurm."""
    import submitit

    folder = Path(prepared.record.nodes[0].directory) / "submitit"  # our own id: Slurm's start anew on a new cluster
    try:
        python = shlex.join([sys.executable, "-u", str(PYTHON)])
        slurm = submitit.SlurmExecutor(folder, python=f"{SUPERVISE} {python}")
    except RuntimeError as error:
        raise CannotActError("there is no srun here", help=client.ON_A_LOGIN_NODE) from error
    named = {name.replace("-", "_"): value for name, value in script.flags.items()}  # so they replace submitit's own
    slurm.update_parameters(
        use_srun=False, wckey=None, time=None, setup=list(script.setup), additional_parameters=named
    )
    return slurm


def script_text(prepared: Prepared) -> str:
    """The batch script, as submitit sends it."""
    assert prepared.script is not None
    slurm = executor(prepared, prepared.script)
    return str(slurm._make_submission_file_text(slurm._submitit_command_str, ""))


def submit(prepared: Prepared) -> StoredJob:
    """Write the record, send the script, and look once whether it can start at all.

    Raises InputError or CannotActError with Slurm's own words; then nothing is left in the queue.
    """
    assert prepared.script is not None
    root = Path(prepared.record.nodes[0].directory)
    paths = _make_directory(root, prepared.record, prepared.script.cluster)
    try:
        slurm_id = _send(prepared, prepared.script, root)
    except DlaunchError as error:
        write_record(paths.record, prepared.record.with_(state="failed", reason=error.message, ended=time.time()))
        raise
    record = prepared.record.with_(slurm_id=slurm_id, reason="submitted")
    write_record(paths.record, record)
    append_event(paths, "submitted", slurm_id=slurm_id)
    job = StoredJob(record, paths)
    _refuse_what_cannot_start(job)
    return job


def entry(cluster: SlurmCluster) -> dict[str, Any]:
    """The document of `entry_file`."""
    python = python_of(cluster)
    return {
        "cluster": cluster.model_dump(mode="json"),
        "python": python,
        "with_psutil": python != sys.executable,
        "step": container_options(cluster),
    }


def _make_directory(root: Path, record: JobRecord, cluster: SlurmCluster) -> JobPaths:
    """The job's directory on the shared file system, with its record, and a link to it among the jobs on record."""
    paths = JobPaths(jobs_root() / record.job)
    try:
        root.mkdir(mode=0o700, parents=True)
        write_record(root / paths.record.name, record)
        entry_file(root).write_text(json.dumps(entry(cluster)))
        append_event(JobPaths(root), "created", job=record.job)
        if paths.root != root:
            paths.root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            paths.root.symlink_to(root)
    except OSError as error:
        message = f"cannot write in {root.parent}: {error.strerror}"
        raise CannotActError(message, help=f"df -h {root.parent}; or set `directory` of the cluster") from error
    return paths


def _send(prepared: Prepared, script: Script, root: Path) -> str:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    settings = prepared.settings
    secrets = only_secrets({**settings.inventory_env, **settings.command_line_env})
    slurm = executor(prepared, script)
    try:
        with _environment(secrets):  # sbatch hands its environment to the job: no file of ours holds a secret
            return str(slurm.submit(supervise, str(root)).job_id)
    except (FailedJobError, FailedSubmissionError) as error:
        raise _submission_error(str(error)) from error
    except OSError as error:
        raise CannotActError(f"cannot write the batch script: {error.strerror}", help=f"df -h {root}") from error


@contextmanager
def _environment(extra: Mapping[str, str]) -> Iterator[None]:
    """`extra` in this process's environment for a while; variables of an allocation that we are in are left out."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(("SLURM_", "SBATCH_")) and name != "SLURM_CONF":
            del os.environ[name]
    os.environ.update(extra)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _submission_error(said: str) -> DlaunchError:
    found = refusal(said)
    message = f"sbatch: {found.message}"
    if "unrecognized" in said:
        known = sorted(client.option_names())
        message += suggestion(found.option.lstrip("-"), known)
    if found.kind in ("option", "request"):
        return InputError(message, where=found.option, help=found.help)
    return CannotActError(message, help=found.help or "scontrol ping")


def _refuse_what_cannot_start(job: StoredJob) -> None:
    """Cancel a job that Slurm says can never start, and raise InputError with the reason."""
    deadline = time.monotonic() + FIRST_LOOK_S
    slurm_id = str(job.record.slurm_id)
    while True:
        try:
            status = client.show_job(slurm_id)
        except CannotActError:
            return  # the controller is busy; the poll will say how the job stands
        why = pending_reason(status.reason)
        if status.state.phase != "waiting" or (status.reason and not why.never) or time.monotonic() > deadline:
            return
        if why.never and not why.code.startswith("JobHeld"):
            client.cancel(slurm_id)
            message = f"Slurm job {slurm_id} could never start: {why}; it was cancelled"
            write_record(job.paths.record, job.record.with_(state="failed", reason=message, ended=time.time()))
            raise InputError(message, where=job.record.cluster, help=why.help)
        time.sleep(0.05)

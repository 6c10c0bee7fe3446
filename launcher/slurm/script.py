"""The batch script: a cluster's entry and a job's shape -> sbatch options and shell lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.errors import InputError
from launcher.slurm.values import UNLIMITED, duration
from launcher.spec import JobSpec

if TYPE_CHECKING:
    from launcher.inventory import SlurmCluster

Flags = dict[str, str | int | bool]
# Keys of the inventory that are sbatch options under another or the same name.
_SAME_NAME = (
    "partition", "account", "qos", "time", "constraint", "gres", "gpus_per_node", "cpus_per_task", "mem", "nodelist",
    "reservation", "switches", "segment", "licenses",
)  # fmt: skip
# What `sbatch:` may not say, since the job would not be what was planned.
_OURS = frozenset({"nodes", "ntasks", "ntasks-per-node", "signal", "job-name", "array", "output", "error", "open-mode"})
SUPERVISE = "supervise"
# bash keeps the allocation while an agent lives, also when the supervisor was killed, and passes the warning on to it.
# A signal cuts `wait` short, with a status of its own: the supervisor's is asked for once it has ended.
# The steps hold a shared lock on the file; `flock` waits for the last of them.
SUPERVISE_FUNCTION = """\
export DLAUNCH_STEPS=${TMPDIR:-/tmp}/dlaunch-steps-$SLURM_JOB_ID
supervise() {
  local supervisor status
  trap 'kill -USR2 $supervisor 2>/dev/null' USR2
  trap 'kill -TERM $supervisor 2>/dev/null' TERM
  "$@" &
  supervisor=$!
  while wait $supervisor; kill -0 $supervisor 2>/dev/null; do :; done
  wait $supervisor
  status=$?
  flock "$DLAUNCH_STEPS" true
  rm -f "$DLAUNCH_STEPS"
  return $status
}"""


@dataclass(frozen=True)
class Script:
    """`flags`: sbatch options by long name, without dashes; `True` stands for an option without a value.

    `cluster` is the entry that they come from, with what the command line added.
    """

    flags: Flags
    setup: Sequence[str]
    cluster: SlurmCluster


def batch_script(cluster: SlurmCluster, spec: JobSpec, job: str, exclude: Sequence[str] = ()) -> Script:
    """The options and setup lines of `job`, which is Slurm's name for it too: it tells a reused Slurm id apart.

    Raises InputError for a passthrough flag that we set ourselves.
    """
    flags = entry_flags(cluster)
    excluded = [*filter(None, [cluster.exclude]), *exclude]
    if excluded:
        flags["exclude"] = ",".join(excluded)
    flags["nodes"] = _nodes(spec)
    flags["ntasks-per-node"] = 1
    flags["job-name"] = job
    flags["signal"] = f"B:USR2@{cluster.signal_seconds}"
    flags["requeue" if cluster.requeue else "no-requeue"] = True
    flags.update(_passthrough(cluster.sbatch))
    return Script(flags, SUPERVISE_FUNCTION.splitlines(), cluster)


def entry_flags(cluster: SlurmCluster) -> Flags:
    """The keys of the entry that are options of sbatch, and of salloc."""
    values = {key.replace("_", "-"): getattr(cluster, key) for key in _SAME_NAME}
    return {name: value for name, value in values.items() if value is not None}


def with_options(cluster: SlurmCluster, given: Sequence[str]) -> SlurmCluster:
    """The entry with `K=V` of the command line in the place of its own; `K` alone is an option without a value.

    Raises InputError for a value that the key cannot have.
    """
    from pydantic import ValidationError

    keys: dict[str, object] = {}
    flags: Flags = dict(cluster.sbatch)
    for option in given:
        name, equals, value = option.lstrip("-").partition("=")
        key = name.replace("-", "_")
        if key in _SAME_NAME or key == "exclude":
            keys[key] = value
        else:
            flags[name] = value if equals else True
    try:
        return type(cluster).model_validate({**cluster.model_dump(), **keys, "sbatch": flags})
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(first["msg"], where=f"--sbatch {first['loc'][0]}") from error


def _nodes(spec: JobSpec) -> str:
    low, high = spec.min_nodes or spec.nodes, spec.max_nodes or spec.nodes
    return str(high) if low == high else f"{low}-{high}"


def _passthrough(given: Mapping[str, str | int | bool]) -> Flags:
    flags: Flags = {}
    for name, value in given.items():
        long_name = name.lstrip("-").replace("_", "-")
        if long_name in _OURS:
            raise InputError(f"--{long_name} is set by dlaunch", where="sbatch", help="remove it from `sbatch:`")
        if value is not False:
            flags[long_name] = value
    return flags


def container_options(cluster: SlurmCluster) -> list[str]:
    """srun's options of pyxis, for the step of the agents."""
    if not cluster.container_image:
        return []
    mounts = [f"--container-mounts={','.join(cluster.container_mounts)}"] if cluster.container_mounts else []
    return [f"--container-image={cluster.container_image}", *mounts]


def check_time(cluster: SlurmCluster, where: str) -> None:
    """Raises InputError for a time limit that Slurm could not read, or that leaves no room for the warning."""
    if cluster.time is None or cluster.time in UNLIMITED:
        return
    seconds = duration(cluster.time)
    if seconds is None:
        raise InputError(f"{cluster.time!r} is no time limit", where=f"{where}: time", help="for example 1-00:00:00")
    if seconds <= cluster.signal_seconds:
        raise InputError(
            f"the warning {cluster.signal_seconds} s before the end leaves nothing of {cluster.time}",
            where=f"{where}: signal_seconds",
            help="a longer `time` or a shorter `signal_seconds`",
        )

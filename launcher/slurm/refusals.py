"""Why a Slurm command failed, sorted out of what it wrote to stderr."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Why a Slurm command failed; `message` is Slurm's own line.

    `kind`: `unreachable`, `no_accounting`, `option`, `request`, `permission`, `unknown_job` or `other`.
    """

    kind: str
    message: str
    help: str = ""
    option: str = ""  # `--name` where the message names one


_REFUSALS: tuple[tuple[str, str, str], ...] = (
    (
        r"Unable to contact slurm controller|Unable to establish (?:control machine|configuration source)"
        r"|Slurmctld\(primary\).* is DOWN"
        r"|Communication connection failure|Zero Bytes were transmitted|Connection refused"
        r"|Socket timed out|temporarily unable to accept job"
        r"|Could not establish a configuration source|(?:Slurm )?backup controller in standby",
        "unreachable",
        "scontrol ping",
    ),
    (r"[Aa]ccounting storage is disabled", "no_accounting", ""),
    (
        r"unrecognized option|invalid option|option requires an argument|option .* is ambiguous",
        "option",
        "sbatch --help",
    ),
    (r"Invalid job id|Invalid jobid", "unknown_job", "dlaunch ps"),
    (r"Invalid partition|partition .* not (?:found|exist)|No partition specified", "request", "sinfo -s"),
    (r"Invalid qos|[Ii]nvalid account|account/partition combination", "request", "sacctmgr show assoc user=$USER"),
    (r"Protocol authentication error|Munge (?:en|de)code failed", "permission", "munge -n | unmunge"),
    (r"Access/permission denied|not permitted|User's group not permitted|Access denied", "permission", ""),
    (
        r"Requested (?:node|partition) configuration (?:is )?not available|Memory required by task is not available",
        "request",
        "sinfo -N -o '%N %c %m %G %f'",
    ),
    (r"[Jj]ob dependency problem|Dependency", "request", "squeue --me"),
    (r"More processors requested|Node count specification|Maximum node count|[Tt]oo many", "request", "sinfo -s"),
    (r"Requested time limit|time limit .*(?:invalid|exceeds)", "request", "scontrol show partition"),
    (r"[Ii]nvalid feature", "request", "sinfo -o '%N %f'"),
    (r"Invalid node name|Unable to find node|nodes? .* not in partition", "request", "sinfo -N"),
    (r"[Rr]eservation", "request", "scontrol show reservation"),
    (r"[Ll]icense", "request", "scontrol show licenses"),
    (r"generic resource|GRES|[Gg]res|TRES", "request", "sinfo -N -o '%N %G'"),
    (r"Invalid --?\S+ specification|Invalid .* specification|[Ii]nvalid (?:numeric|time)", "option", "sbatch --help"),
    (r"violates accounting|QOS|Job violates|limit", "request", "sacctmgr show qos"),
    (r"Unable to open file|Batch script|Disk quota|No space left|I/O error writing script", "other", ""),
)


def refusal(stderr: str) -> Refusal:
    """Sort out what a client command said when it failed; the message is Slurm's own line."""
    lines = [_bare(line) for line in stderr.splitlines() if line.strip() and not line.startswith("Try ")]
    message = next((line for line in lines if _sort(line)), lines[-1] if lines else "no message")
    kind, help = _sort(message) or ("other", "")
    option = re.search(r"(?<![\w-])(--?[a-z][\w-]*)", message)
    return Refusal(kind, message, help, option[1] if option else "")


def _bare(line: str) -> str:
    line = re.sub(r"^(?:sbatch|srun|salloc|squeue|scontrol|sinfo|sacct|scancel): ", "", line.strip())
    return re.sub(r"^(?:error: |fatal: )?(?:Batch job submission failed: )?", "", line)


def _sort(line: str) -> tuple[str, str] | None:
    return next(((kind, help) for pattern, kind, help in _REFUSALS if re.search(pattern, line)), None)

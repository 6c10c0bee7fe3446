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
        r"|Could not establish a configuration source|(?:Slurm )?backup controller in standby|in standby mode"
        r"|Rate limit exceeded|Connection (?:timed out|rejected)|Message (?:send|receive) failure|missing socket error"
        r"|Communication shutdown failure|Can't find an address|closing all communications|Name or service not known"
        r"|Resource temporarily unavailable",
        "unreachable",
        "scontrol ping",
    ),
    (r"[Aa]ccounting storage is disabled", "no_accounting", ""),
    (r"Unable to connect to database", "unreachable", "sacctmgr ping"),
    (
        r"unrecognized option|invalid option|option requires an argument|option .* is ambiguous",
        "option",
        "sbatch --help",
    ),
    (
        r"Invalid job ?id|JobID (?:can not|includes|larger|must not)|Job(?:/step)? (?:has )?already (?:comp|fin)",
        "unknown_job",
        "dlaunch ps",
    ),
    (
        r"Invalid partition|partition .* not (?:found|exist)|No partition specified|in DOWN state"
        r"|Required partition not available|Only batch jobs are accepted",
        "request",
        "sinfo -s",
    ),
    (
        r"Invalid (?:qos|QOS)|[Ii]nvalid account|account/partition combination|unknown association|in the association",
        "request",
        "sacctmgr show assoc user=$USER",
    ),
    (
        r"[Aa]uthentication (?:error|credential|of user)|Munge (?:en|de)code failed",
        "permission",
        "munge -n | unmunge",
    ),
    (r"[Pp]ermission denied|not permitted|User's group not permitted|Access denied|Invalid user id", "permission", ""),
    (
        r"Requested (?:node|partition|topology) configuration (?:is )?not available"
        r"|Memory required by task is not available|do not fit topology|topology unit|cores per GPU|threads per core",
        "request",
        "sinfo -N -o '%N %c %m %G %f'",
    ),
    (r"[Jj]ob dependency|Dependency", "request", "squeue --me"),
    (
        r"More processors requested|(?:count|distribution) specification|Maximum node count|[Tt]oo many|Job size"
        r"|powered up nodes",
        "request",
        "sinfo -s",
    ),
    (
        r"nodes are busy|node not available|start immediately|Immediate execution impossible|ports are in use",
        "request",
        "sinfo -R",
    ),
    (r"Requested time limit|time limit .*(?:invalid|exceeds)", "request", "scontrol show partition"),
    (r"[Ii]nvalid (?:preferred )?feature", "request", "sinfo -o '%N %f'"),
    (r"Invalid node name|Unable to find node|nodes? (?:.* )?not in (?:this )?partition", "request", "sinfo -N"),
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

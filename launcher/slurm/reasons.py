"""Why a job waits, in words, and whether it can ever start."""

from __future__ import annotations

import re
from dataclasses import dataclass

SHOW_PARTITION = "scontrol show partition"
SHOW_ASSOCIATION = "sacctmgr show assoc user=$USER"
SHOW_NODES = "sinfo -N -o '%N %c %m %G %f'"


@dataclass(frozen=True)
class PendingReason:
    """`never`: it cannot start unless somebody changes the job or the cluster; `help` is the command that shows why."""

    code: str
    text: str
    never: bool = False
    help: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.code})" if self.code else self.text


_WAITS = {
    "": "not looked at yet",
    "Resources": "waits for nodes to become free",
    "Priority": "jobs with a higher priority wait before it",
    "BeginTime": "its earliest start has not come; after a requeue Slurm waits about two minutes",
    "Dependency": "waits for another job",
    "JobArrayTaskLimit": "its array runs as many tasks as it may",
    "Reservation": "waits for its reservation",
    "Licenses": "waits for licenses",
    "NodeDown": "a node that it needs is down",
    "ReqNodeNotAvail": "a node that it asks for is down, drained or reserved",
    "Nodes required for job are DOWN": "nodes that it needs are down, drained or reserved",
    "Prolog": "the prolog runs",
    "Cleaning": "Slurm still cleans up its last run",
    "SchedDefer": "the scheduler has put it off",
    "PowerNotAvail": "waits for power",
    "FrontEndDown": "no front end is up",
    "MaxPowerPerAccount": "its account uses all the power that it may",
}
_NEVER = {
    "PartitionNodeLimit": ("asks for more nodes than its partition has or allows", SHOW_PARTITION),
    "PartitionTimeLimit": ("asks for more time than its partition allows", SHOW_PARTITION),
    "MaxMemPerLimit": ("asks for more memory than its partition allows", SHOW_PARTITION),
    "PartitionConfig": ("asks for more than its partition allows", SHOW_PARTITION),
    "PartitionDown": ("its partition is down", "sinfo -s"),
    "PartitionInactive": ("its partition is inactive", "sinfo -s"),
    "BadConstraints": ("no node has what it asks for", SHOW_NODES),
    "Constraints": ("no node has what it asks for", SHOW_NODES),
    "DependencyNeverSatisfied": ("the job that it waits for has failed", "scancel it and submit anew"),
    "InvalidAccount": ("its account is not known", SHOW_ASSOCIATION),
    "AccountNotAllowed": ("its account may not use its partition", SHOW_PARTITION),
    "InvalidQOS": ("its QOS is not known", "sacctmgr show qos"),
    "QOSNotAllowed": ("its QOS may not use its partition", SHOW_PARTITION),
    "ReservationDeleted": ("its reservation is gone", "scontrol show reservation"),
    "ReservationInvalid": ("it may not use its reservation", "scontrol show reservation"),
    "JobHeldAdmin": ("held by an administrator", "ask the administrators"),
    "JobHeldUser": ("held by its user", "scontrol release ID"),
    "JobLaunchFailure": ("its launch failed", "scontrol show job ID"),
    "launch failed requeued held": ("held after its launch failed", "scontrol release ID"),
    "job requeued in held state": ("held after its requeue", "scontrol release ID"),
    "JobHoldMaxRequeue": ("requeued as often as Slurm allows", "scontrol release ID"),
    "user env retrieval failed requeued held": (
        "held since the user's environment could not be read",
        "scontrol release ID",
    ),
    "Deadline": ("its deadline has passed", "scancel it and submit anew"),
}
# Limits of a QOS or an association: those on a single job never pass, those on the sum of jobs do.
_ON_ONE_JOB = re.compile(r"(?:QOS|Assoc)\w*(?:PerJob|Min[A-Z]|TimeLimit)\w*")
_ON_THE_SUM = re.compile(r"(?:QOS|Assoc)\w+")


def pending_reason(reason: str) -> PendingReason:
    """Explain squeue's reason, bare or in brackets: `(ReqNodeNotAvail, UnavailableNodes:n[1-2])`."""
    bare = reason.strip()
    while bare.startswith("(") and bare.endswith(")"):
        bare = bare[1:-1].strip()
    code = re.split(r"[,:(]", bare, maxsplit=1)[0].strip()
    code = "" if code in ("None", "null") else code
    detail = bare[len(code) :].strip(" ,:") if code else ""
    if code in _NEVER:
        text, help = _NEVER[code]
        return PendingReason(code, text, True, help)
    if code in _WAITS:
        return PendingReason(code, f"{_WAITS[code]}: {detail}" if detail.startswith("Unavail") else _WAITS[code])
    return _limit(code)


def _limit(code: str) -> PendingReason:
    kind, help = ("QOS", "sacctmgr show qos") if code.startswith("QOS") else ("association", SHOW_ASSOCIATION)
    if _ON_ONE_JOB.match(code):
        return PendingReason(code, f"asks for more than its {kind} allows one job", True, help)
    if _ON_THE_SUM.match(code):
        return PendingReason(code, f"its {kind} uses all that it may", help=help)
    return PendingReason(code, "waits")

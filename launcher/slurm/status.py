"""What Slurm knows of a job and of a node, whatever command and version said it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.errors import CannotActError
from launcher.slurm import values
from launcher.slurm.states import (
    JobState,
    NodeState,
    job_state,
    job_state_from_words,
    node_state,
    node_state_from_words,
)
from launcher.slurm.text import ScontrolRecord, delimited, scontrol_records, split_reason
from launcher.slurm.values import ExitCode, Gres, generic_resources


@dataclass(frozen=True)
class JobStatus:
    """A job. Times in seconds since the epoch, `nodes` as Slurm's hostlist, `id` as Slurm prints it (`12_3`, `7+1`)."""

    id: str
    state: JobState
    reason: str = ""
    name: str = ""
    user: str = ""
    partition: str = ""
    nodes: str = ""
    node_count: int | None = None
    started: float | None = None  # of a waiting job: the expected start
    ended: float | None = None
    submitted: float | None = None
    time_limit_s: float | None = None
    exit_code: ExitCode | None = None
    restarts: int | None = None
    task_id: int | None = None
    devices: tuple[str, ...] = ()  # generic resources of each set of nodes
    tres: str = ""
    working_directory: str = ""
    command: str = ""


@dataclass(frozen=True)
class NodeStatus:
    """A node. Memory in MiB."""

    name: str
    state: NodeState
    reason: str = ""
    partitions: tuple[str, ...] = ()
    gres: tuple[Gres, ...] = ()
    gres_used: tuple[Gres, ...] = ()
    cpus: int | None = None
    cpus_allocated: int | None = None
    memory: int | None = None
    memory_free: int | None = None
    version: str = ""

    @property
    def device_count(self) -> int:
        return sum(resource.count for resource in self.gres if resource.name == "gpu")


class SlurmError(CannotActError):
    """Slurm answered with errors instead of data; `number` is Slurm's own, 0 where it gave none."""

    def __init__(self, message: str, number: int = 0, *, help: str = "") -> None:
        super().__init__(message, help=help)
        self.number = number


def load_json(text: str) -> Mapping[str, Any]:
    """The document of a `--json` call. Raises SlurmError with Slurm's first error, or when it is no JSON."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SlurmError(f"Slurm's answer is not JSON: {text.strip()[:120] or 'empty'}") from error
    if not isinstance(document, dict):
        raise SlurmError(f"Slurm's answer is no JSON object: {text.strip()[:120]}")
    for problem in document.get("errors") or ():
        raise SlurmError(_problem(problem), problem.get("error_number") or problem.get("error_code") or 0)
    return document


def _problem(problem: Mapping[str, Any]) -> str:
    said = [str(problem[key]) for key in ("description", "error") if problem.get(key)]
    return ": ".join(said) or "Slurm reported an error without a text"


def release(document: Mapping[str, Any]) -> str:
    """The Slurm version that wrote a JSON document, e.g. `24.05.3`."""
    meta = document.get("meta") or {}
    return str((meta.get("slurm") or meta.get("Slurm") or {}).get("release", ""))


def job_from_json(record: Mapping[str, Any]) -> JobStatus:
    """A record of `squeue --json` (21.08 to 25.11) or of `sacct --json`, told apart by the form of their state."""
    accounting = "state" in record
    state = record["state"] if accounting else record["job_state"]
    times = record.get("time") or {}
    nested = accounting and isinstance(state, Mapping)
    minutes = values.number(times.get("limit") if accounting else record.get("time_limit"))
    return JobStatus(
        id=str(record["job_id"]),
        state=job_state_from_words(values.words(state["current"] if nested else state)),
        reason=str(state.get("reason", "")) if nested else str(record.get("state_reason") or ""),
        name=str(record.get("name") or ""),
        user=str(record.get("user") or record.get("user_name") or ""),
        partition=str(record.get("partition") or ""),
        nodes=_hostlist(record.get("nodes")),
        node_count=values.integer(record.get("allocation_nodes", record.get("node_count"))),
        started=values.moment(times.get("start") if accounting else record.get("start_time")),
        ended=values.moment(times.get("end") if accounting else record.get("end_time")),
        submitted=values.moment(times.get("submission") if accounting else record.get("submit_time")),
        time_limit_s=None if minutes is None else minutes * 60,
        exit_code=values.exit_code(record.get("exit_code")),
        restarts=values.integer(record.get("restart_cnt")),
        task_id=values.integer(record.get("array_task_id")),
        devices=tuple(record.get("gres_detail") or ()),
        tres=str(record.get("tres_alloc_str") or ""),
        working_directory=str(record.get("current_working_directory") or record.get("working_directory") or ""),
        command=str(record.get("command") or ""),
    )


def _hostlist(value: Any) -> str:
    text = str(value or "")
    return "" if text in values.NOTHING or text == "None assigned" else text


def node_from_json(record: Mapping[str, Any]) -> NodeStatus:
    """A node of `sinfo --json` or `scontrol show nodes --json`, 21.08 to 25.11."""
    state = [*values.words(record["state"]), *values.words(record.get("state_flags"))]
    free = record.get("free_mem", record.get("free_memory"))
    return NodeStatus(
        name=str(record["name"]),
        state=node_state_from_words(state),
        reason=str(record.get("reason") or ""),
        partitions=tuple(record.get("partitions") or ()),
        gres=tuple(generic_resources(record.get("gres") or "")),
        gres_used=tuple(generic_resources(record.get("gres_used") or "")),
        cpus=values.integer(record.get("cpus")),
        cpus_allocated=values.integer(record.get("alloc_cpus")),
        memory=values.integer(record.get("real_memory")),
        memory_free=values.integer(free),
        version=str(record.get("version") or record.get("slurmd_version") or ""),
    )


def jobs_from_scontrol(text: str) -> list[JobStatus]:
    """`scontrol show job [-d]`: works where this version's scontrol writes no JSON."""
    return [_job_from_record(record) for record in scontrol_records(text) if "JobId" in record.fields]


def _job_from_record(record: ScontrolRecord) -> JobStatus:
    fields = record.fields
    known = {key: "" if value in values.NOTHING else value for key, value in fields.items()}
    return JobStatus(
        id=fields["JobId"],
        state=job_state(fields.get("JobState", "")),
        reason=known.get("Reason", ""),
        name=known.get("JobName", ""),
        user=known.get("UserId", "").partition("(")[0],
        partition=known.get("Partition", ""),
        nodes=known.get("NodeList", ""),
        node_count=_leading_integer(known.get("NumNodes", "")),
        started=values.moment(known.get("StartTime", "")),
        ended=values.moment(known.get("EndTime", "")),
        submitted=values.moment(known.get("SubmitTime", "")),
        time_limit_s=values.duration(known.get("TimeLimit", "")),
        exit_code=values.exit_code(known.get("ExitCode", "")),
        restarts=_leading_integer(known.get("Restarts", "")),
        task_id=_leading_integer(known.get("ArrayTaskId", "")),
        devices=tuple(detail["GRES"] for detail in record.details if detail.get("GRES")),
        tres=known.get("AllocTRES", known.get("TRES", "")),
        working_directory=known.get("WorkDir", ""),
        command=known.get("Command", ""),
    )


def _leading_integer(text: str) -> int | None:
    digits = text.partition("-")[0]
    return int(digits) if digits.isdecimal() else None


def nodes_from_scontrol(text: str) -> list[NodeStatus]:
    """`scontrol show node`."""
    return [_node_from_fields(record.fields) for record in scontrol_records(text) if "NodeName" in record.fields]


def _node_from_fields(fields: Mapping[str, str]) -> NodeStatus:
    known = {key: "" if value in values.NOTHING else value for key, value in fields.items()}
    return NodeStatus(
        name=fields["NodeName"],
        state=node_state(fields.get("State", "")),
        reason=split_reason(known.get("Reason", ""))[0],
        partitions=tuple(filter(None, known.get("Partitions", "").split(","))),
        gres=tuple(generic_resources(known.get("Gres", ""))),
        gres_used=tuple(generic_resources(known.get("GresUsed", ""))),
        cpus=_leading_integer(known.get("CPUTot", "")),
        cpus_allocated=_leading_integer(known.get("CPUAlloc", "")),
        memory=_leading_integer(known.get("RealMemory", "")),
        memory_free=_leading_integer(known.get("FreeMem", "")),
        version=known.get("Version", ""),
    )


# ---- the two formats that we ask for ourselves

SEPARATOR = "\x1f"
_QUEUE = {  # sacct's names for squeue's columns
    "JobID": "%i", "State": "%T", "Reason": "%r", "User": "%u", "Partition": "%P", "NodeList": "%N", "NNodes": "%D",
    "Start": "%S", "Timelimit": "%l", "Submit": "%V", "WorkDir": "%Z", "JobName": "%j",
}  # fmt: skip
QUEUE_FORMAT = SEPARATOR.join(_QUEUE.values())
ACCOUNTING_FIELDS = "JobID,State,ExitCode,Start,End,NodeList,NNodes,Reason,Partition,User,JobName"


def jobs_from_queue(text: str) -> list[JobStatus]:
    """`squeue -h -t all -o QUEUE_FORMAT`."""
    return [_job_from_row(row) for row in delimited(text, SEPARATOR, list(_QUEUE)).rows]


def jobs_from_accounting(text: str) -> list[JobStatus]:
    """`sacct -n -X -P --delimiter=SEPARATOR --format=ACCOUNTING_FIELDS`; steps are not wanted."""
    rows = delimited(text, SEPARATOR, ACCOUNTING_FIELDS.split(",")).rows
    return [_job_from_row(row) for row in rows if "." not in row["JobID"]]


def _job_from_row(row: Mapping[str, str]) -> JobStatus:
    return JobStatus(
        id=row["JobID"],
        state=job_state(row["State"]),
        reason="" if row["Reason"] in values.NOTHING else row["Reason"],
        name=row["JobName"],
        user=row["User"],
        partition=row["Partition"],
        nodes=_hostlist(row["NodeList"]),
        node_count=_leading_integer(row["NNodes"]),
        started=values.moment(row["Start"]),
        ended=values.moment(row.get("End", "")),
        submitted=values.moment(row.get("Submit", "")),
        time_limit_s=values.duration(row.get("Timelimit", "")),
        exit_code=values.exit_code(row.get("ExitCode", "")),
        working_directory=row.get("WorkDir", ""),
    )

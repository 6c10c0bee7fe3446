"""Why a job or step ended, as Slurm writes it into the job's own output."""

from __future__ import annotations

import re
from dataclasses import dataclass

from launcher.errors import InputError
from launcher.hosts.names import expand

_STEPD = re.compile(
    r"(?:(?:slurmstepd|slurmd)[^:]*: (?:error: )?|\[[\dT:.\-]+\] error: )"  # from 25.05 on a time in place of the name
    r"\*\*\* (?:JOB|STEP) (?P<id>\S+)(?: STEPD TERMINATED)? ON "
    r"(?P<node>\S+) (?:CANCELLED )?AT \S+(?: DUE TO (?P<why>[^*]+?))?\s*\*\*\*"
)
_STEPD_CAUSES = (
    ("JOB NOT ENDING", "step not killable"),
    ("TIME LIMIT", "time limit"),
    ("PREEMPTION", "preempted"),
    ("NODE FAILURE", "node failure"),
    ("REQUEUE", "requeued"),
    ("SIGNAL", "cancelled"),
)
_TASKS = re.compile(r"srun: error: (?P<node>\S+?): tasks? (?P<tasks>[\d,\-]+): (?P<how>.+?)\s*$")
_HOW = {
    "Killed": "SIGKILL",
    "Terminated": "SIGTERM",
    "Aborted": "SIGABRT",
    "Segmentation fault": "segfault",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
    "Hangup": "SIGHUP",
    "Interrupt": "SIGINT",
    "Quit": "SIGQUIT",
    "Out Of Memory": "oom",
    "User defined signal 1": "SIGUSR1",
    "User defined signal 2": "SIGUSR2",
}
_OTHERS = (
    (re.compile(r"oom[_-]kill(?: event|er)|Out Of Memory|exceeded .*memory limit", re.IGNORECASE), "oom"),
    (re.compile(r"Node failure on (?P<nodes>\S+)"), "node failure"),
    (re.compile(r"Prolog failure(?: on node (?P<nodes>\S+))?|prolog .*failed", re.IGNORECASE), "prolog failure"),
    (re.compile(r"JobId=\S+ (?:exceeded|reached) .*time limit|Exceeded job time limit", re.IGNORECASE), "time limit"),
    (re.compile(r"Unable to create (?:job )?step|Job step creation temporarily disabled"), "step not started"),
    (re.compile(r"Task launch for \S+ failed on node (?P<nodes>[^\s:]+)"), "step not started"),
    (re.compile(r"Application launch failed|task (?P<tasks>[\d,\-]+) launch failed"), "step not started"),
)


@dataclass(frozen=True)
class StepEnd:
    """Why a job or step ended, from one line: `nodes` and `tasks` as Slurm folds them, `exit_status` of a task."""

    cause: str
    nodes: str = ""
    tasks: str = ""
    exit_status: int | None = None
    job: str = ""


def end_on(node: str, output: str) -> str:
    """Why the newest task on `node` ended, by the output of its step; empty where nothing names that node."""
    ends = [end for line in output.splitlines() if (end := step_end(line)) and node in _names(end.nodes)]
    return ends[-1].cause if ends else ""


def _names(nodes: str) -> list[str]:
    try:
        return expand(nodes)
    except InputError:  # a line that somebody else wrote
        return []


def step_end(line: str) -> StepEnd | None:
    """What a line of a job's output says of its end; None for any other line."""
    if found := _STEPD.search(line):
        why = (found["why"] or "").upper()
        cause = next((name for words, name in _STEPD_CAUSES if words in why), "cancelled")
        return StepEnd(cause, found["node"], job=found["id"].partition(".")[0])
    if found := _TASKS.search(line):
        return _task_end(found["node"], found["tasks"], found["how"])
    for pattern, cause in _OTHERS:
        if found := pattern.search(line):
            nodes, tasks = (found.groupdict().get(name) or "" for name in ("nodes", "tasks"))
            return StepEnd(cause, nodes.rstrip(".,"), tasks)
    return None


def _task_end(node: str, tasks: str, how: str) -> StepEnd:
    how = how.removesuffix(" (core dumped)")
    if exited := re.search(r"[Ee]xit(?:ed with exit)? code:? (\d{1,9})", how):
        return StepEnd(f"exit {exited[1]}", node, tasks, int(exited[1]))
    return StepEnd(_HOW.get(how, how), node, tasks)

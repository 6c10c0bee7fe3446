"""States of nodes and jobs, in all the ways in which Slurm writes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

SUFFIXES = {
    "*": "not responding",
    "~": "powered off",
    "#": "powering up or being configured",
    "!": "pending power down",
    "%": "powering down",
    "$": "in a maintenance reservation",
    "@": "reboot pending",
    "^": "reboot issued",
    "-": "planned by the backfill scheduler",
}
_RUNS_JOBS = frozenset({"alloc", "allocated", "idle", "mix", "mixed", "plnd", "planned", "resv", "reserved", "comp"})
_RUNS_JOBS_LONG = _RUNS_JOBS | {"completing"}
_BARRED_FLAGS = frozenset(
    {"DRAIN", "DRAINED", "DRAINING", "FAIL", "NOT_RESPONDING", "INVALID_REG", "INVAL", "POWERED_DOWN", "POWER_DOWN"}
    | {"POWERING_DOWN", "REBOOT_ISSUED", "MAINTENANCE", "BLOCKED"}
)
_BARRED_SUFFIXES = frozenset("*~%$^")


@dataclass(frozen=True)
class NodeState:
    """One state token: `base` in lower case, `flags` behind `+` in upper case, `suffix` a character or nothing."""

    base: str
    suffix: str = ""
    flags: tuple[str, ...] = ()

    @property
    def takes_jobs(self) -> bool:
        """Whether Slurm would start a job here, now or when it is free."""
        barred = self.suffix in _BARRED_SUFFIXES if self.suffix else bool(_BARRED_FLAGS & set(self.flags))
        return self.base in _RUNS_JOBS_LONG and not barred

    def __str__(self) -> str:
        meaning = f" ({SUFFIXES[self.suffix]})" if self.suffix else ""
        return "+".join([self.base + self.suffix, *(flag.lower() for flag in self.flags)]) + meaning


def node_state(token: str) -> NodeState:
    """Read `idle*`, `MIXED+CLOUD`, `DOWN*+DRAIN`: compact, long and scontrol's forms."""
    head, *flags = token.strip().split("+")
    base = head.rstrip("".join(SUFFIXES))
    return NodeState(base.lower(), head[len(base) :][:1], tuple(filter(None, flags)))


def node_state_from_words(words: Iterable[str]) -> NodeState:
    """The JSON forms: a base state and flags, as a list."""
    base, *flags = words
    return NodeState(base.lower(), "", tuple(flag.upper() for flag in flags))


@dataclass(frozen=True)
class JobState:
    """A job's state by its long name, e.g. `NODE_FAIL`."""

    name: str

    @cached_property
    def phase(self) -> str:
        """`waiting`, `running`, `ending`, `succeeded` or `failed`; `unknown` for a name that we do not know."""
        return _PHASES.get(self.name, "unknown")

    @property
    def ended(self) -> bool:
        return self.phase in ("succeeded", "failed")


_COMPACT = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "CF": "CONFIGURING", "CG": "COMPLETING",
    "DL": "DEADLINE", "F": "FAILED", "LF": "LAUNCH_FAILED", "NF": "NODE_FAIL", "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING", "PR": "PREEMPTED", "R": "RUNNING", "RD": "RESV_DEL_HOLD", "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD", "RQ": "REQUEUED", "RS": "RESIZING", "RV": "REVOKED", "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT", "SI": "SIGNALING", "SO": "STAGE_OUT", "ST": "STOPPED", "TO": "TIMEOUT",
}  # fmt: skip
_PHASES = {
    **dict.fromkeys(
        ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
        "waiting",
    ),
    **dict.fromkeys(("RUNNING", "SUSPENDED", "RESIZING", "SIGNALING", "STOPPED"), "running"),
    **dict.fromkeys(("COMPLETING", "STAGE_OUT"), "ending"),
    "COMPLETED": "succeeded",
    **dict.fromkeys(
        ("BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
        "failed",
    ),
    **dict.fromkeys(("REVOKED", "TIMEOUT"), "failed"),
}


def job_state(text: str) -> JobState:
    """Read `PD`, `RUNNING`, `CANCELLED by 1000`, and the cut cells of a narrow table: `OUT_OF_ME+`."""
    word = text.split()[0].upper() if text.split() else ""
    if word.endswith("+"):
        word = next((name for name in _PHASES if name.startswith(word[:-1])), word[:-1])
    return JobState(_COMPACT.get(word, word))


def job_state_from_words(words: Iterable[str]) -> JobState:
    """The JSON forms. The first word is the base state, a requeue or completion flag behind it says more."""
    base, *flags = [word.upper() for word in words]
    return JobState(next((flag for flag in flags if flag in ("COMPLETING", "REQUEUED", "CONFIGURING")), base))

"""Why a rank did not come: its process, its stack, what its log says → a sub-cause with words and a fix. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from doctor.evidence import EvidenceSet
from doctor.evidence.job import JobFacts
from doctor.evidence.processes import ProcessState
from doctor.evidence.stacks import Stack
from doctor.rules.places import Place, place_of, spot
from launcher.common.finding import Evidence

# sub-cause → (what the rank does, what helps)
SUB_CAUSES: Mapping[str, tuple[str, str]] = {
    "dataloader": (
        "waits for its data loader",
        "Look at the loader's workers and storage on that rank: num_workers=0 shows an error of a worker at once; set "
        "DataLoader(timeout=…) so that a dead worker raises.",
    ),
    "checkpoint": (
        "writes or reads a checkpoint",
        "Check the storage that it writes to; let all ranks take part (torch.distributed.checkpoint) or raise the "
        "timeout of the group over the time that a save takes.",
    ),
    "compile": (
        "compiles code",
        "Warm the compile cache before the timed part, give ranks one cache (TORCHINDUCTOR_CACHE_DIR), and use a "
        "longer timeout for the first steps.",
    ),
    "file_lock": (
        "waits for a lock file",
        "A process that died left the lock: delete it (for extensions the folder under TORCH_EXTENSIONS_DIR, by "
        "default ~/.cache/torch_extensions) and start again; build extensions once before the job.",
    ),
    "gil": (
        "waits for the interpreter's lock (GIL)",
        "See what the thread does that holds it: py-spy dump --native --pid PID.",
    ),
    "exception": (
        "stands in an exception's handling or a debugger",
        "Read that rank's log: its first traceback is the cause. Let exceptions end the process.",
    ),
    "swallowed_exception": (
        "caught an exception and went on without its peers",
        "Let the exception end the process, or let all ranks agree on skipping the step (all_reduce a flag).",
    ),
    "unused_parameter": (
        "did not use a parameter that its peers reduce",
        "DistributedDataParallel(find_unused_parameters=True), or let every rank use the same parameters.",
    ),
    "uneven_data": (
        "had fewer batches and has finished",
        "Give all ranks equally many batches (drop_last=True, or Join around the loop).",
    ),
    "rank0_only": (
        "takes a branch that only some ranks take",
        "Move the collective out of the branch (`if rank == 0:`), so that all ranks of the group call it.",
    ),
    "dead": ("has ended", "Read the end of that rank's log: why it ended is the cause; its peers only wait for it."),
    "stopped": (
        "is stopped (SIGSTOP, a debugger, or a profiler that did not let go)",
        "Continue it: kill -CONT PID; find who stopped it.",
    ),
    "gpu": (
        "waits for its device",
        "Look at the device's kernel lines and at what is queued on it: ddoctor stacks --native.",
    ),
    "disk": (
        "sleeps in the kernel, in a file system or driver",
        "Look at the kernel's lines and the storage of that host.",
    ),
    "silent": (
        "gave no dump",
        "See whether its host answers and its process lives; a missing dump is the first suspect.",
    ),
    "thread": (
        "waits for another thread of its own process",
        "See whether that thread still runs (ddoctor stacks) or has ended: a thread's exception stands in its log, a "
        "future keeps it until result() is called. Let the one who waits have a timeout.",
    ),
    "python": ("runs other code", "See the line of that rank's stack: it has to come to the same call."),
}
# Kernel functions in which a process sleeps, where its Python frames do not say why.
KERNEL_WAITS = (
    ("file_lock", re.compile(r"lock_inode|flock|posix_lock")),
    ("disk", re.compile(r"\b(?:nfs|rpc_wait|lustre|ll_|ceph|fuse_|gpfs|jbd2|xfs_|ext4_|io_schedule)")),
)


@dataclass(frozen=True)
class Suspect:
    """One rank, why it is late, and what tells."""

    rank: int
    sub_cause: str
    place: Place | None = None
    evidence: tuple[Evidence, ...] = ()
    note: str = ""  # e.g. the exit status

    @property
    def does(self) -> str:
        return SUB_CAUSES[self.sub_cause][0] + (f" ({self.note})" if self.note else "")

    @property
    def fix(self) -> str:
        return SUB_CAUSES[self.sub_cause][1]


@dataclass(frozen=True)
class Witnesses:
    """What is known of each rank beside its dump."""

    stacks: Mapping[int, Stack]
    states: Mapping[int, ProcessState]
    stepping: Sequence[int] = ()  # ranks that made steps, or came out of a wait, between two looks

    def place(self, rank: int) -> Place | None:
        stack = self.stacks.get(rank)
        return place_of(stack) if stack else None

    def is_dead(self, rank: int) -> bool:
        """Whether the process has ended: a stack in its log is then its last words, not where it waits."""
        return rank in self.states and self.states[rank].dead

    def suspect(self, rank: int) -> Suspect:
        """Why `rank` is late, the surest sign first: the process's state, its stack."""
        state, stack = self.states.get(rank), self.stacks.get(rank)
        seen = tuple(_seen(state)) if state else ()
        place = place_of(stack) if stack else None
        if stack and place:
            seen += tuple(_stands(stack, place))
        if state and state.dead:
            return Suspect(rank, "dead", place, seen, _end(state))
        if state and state.state == "stopped":
            return Suspect(rank, "stopped", place, seen, f"pid {state.pid}" if state.pid else "")
        if place:
            return Suspect(rank, _by_place(place, state), place, seen, place.line)
        if state and state.state == "disk-sleep":
            return Suspect(rank, "disk", None, seen, state.wchan)
        return Suspect(rank, "python" if state else "silent", None, seen)


def witnesses_of(evidence: EvidenceSet) -> Witnesses:
    """The newest stack and state of each rank. Use as `evidence.once(witnesses_of)`."""
    stacks = {one.rank: one for one in sorted(evidence.of(Stack), key=lambda one: one.where) if one.rank is not None}
    states: dict[int, ProcessState] = {}
    for one in sorted(evidence.of(ProcessState), key=lambda one: (one.time, one.dead)):
        if one.rank is not None:
            states[one.rank] = one
    if all(one.dead for one in states.values()) and any(job.state == "stopped" for job in evidence.of(JobFacts)):
        states = {}  # they ended because somebody stopped the job
    stepping = _stepping(evidence.of(ProcessState)) | _left_a_wait(evidence.of(Stack))
    return Witnesses(stacks, states, sorted(stepping))


def _stepping(states: Sequence[ProcessState]) -> set[int]:
    steps: dict[int, set[int]] = {}
    for one in states:
        if one.rank is not None and one.step is not None and not one.dead and "/sample-" in one.where:
            steps.setdefault(one.rank, set()).add(one.step)
    return {rank for rank, seen in steps.items() if len(seen) > 1}


def _left_a_wait(stacks: Sequence[Stack]) -> set[int]:
    """Ranks that one look shows in a wait for their peers, or in the backward pass, and another at another line.

    Looks of one tool have the same file name; other tools may print the same stack in other words.
    """
    spots: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    waited: set[int] = set()
    for stack in stacks:
        place = place_of(stack)
        if stack.rank is not None and (frame := place.user or place.frame):
            spots[stack.rank, PurePath(stack.where).name].add(spot(frame))
            waited |= {stack.rank} if place.waits_for_peers or place.kind == "backward" else set()
    return {rank for (rank, _), seen in spots.items() if rank in waited and len(seen) > 1}


def _by_place(place: Place, state: ProcessState | None) -> str:
    if place.kind in SUB_CAUSES and place.kind != "python":
        return place.kind
    kernel = " ".join((state.wchan, *state.kernel)) if state else ""
    if found := next((cause for cause, pattern in KERNEL_WAITS if pattern.search(kernel)), ""):
        return found
    return {"teardown": "uneven_data", "backward": "python"}.get(place.kind, "python")


def _stands(stack: Stack, place: Place) -> Iterator[Evidence]:
    yield Evidence("stack", f"rank {stack.rank}, {stack.where}", place.line)
    for thread in stack.threads if place.kind == "gil" else ():
        if thread.owns_gil and thread.frames:
            yield Evidence("stack", f"rank {stack.rank}, thread {thread.name} holds the GIL", str(thread.frames[0]))


def _seen(state: ProcessState) -> list[Evidence]:
    words = [state.state, f"in {state.wchan}" if state.wchan else "", _end(state)]
    where = f"rank {state.rank}, {state.where}"
    return [Evidence("process", where, " ".join(filter(None, words)))] if state.state != "running" else []


def _end(state: ProcessState) -> str:
    if state.exit_status is None:
        return state.error
    ended = f"signal {-state.exit_status}" if state.exit_status < 0 else f"exit status {state.exit_status}"
    return f"{ended}: {state.error}" if state.error else ended

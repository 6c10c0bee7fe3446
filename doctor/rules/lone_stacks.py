"""Stacks by themselves, where none is known to wait for the others: what each tells, and who stands apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.stacks import Stack, Thread
from doctor.rules import Rule
from doctor.rules.places import Place, place_of, working_threads
from doctor.rules.suspects import SUB_CAUSES
from launcher.common.finding import Evidence, Finding, unknown

# A rank found alone in one of these holds up its peers, whatever they do.
TELLING_ALONE = ("dataloader", "file_lock", "checkpoint", "exception")
SHOWN = 8
_WATCHDOG = re.compile(r"pt_nccl_watchdg|pt_nccl_heartbt|ncclCommWatchdog|Watchdog(?:Handler)?\b|watchdogHandler")
_BLOCKING = re.compile(
    r"ncclComm(?:Abort|Destroy|Finalize)|commReclaim|^cu(?:da)?\w*(?:Destroy|Synchronize|Free)\w*|take_gil"
    r"|PyGILState_Ensure|PyEval_RestoreThread"
)
_ENDING = re.compile(r"ncclComm(?:Abort|Destroy|Finalize)|(?:destroy|abort)_process_group|ProcessGroupNCCL::abort")
MISSING = ("stacks of all ranks at one time (ddoctor collect JOB, or py-spy dump --pid PID on each)",)


def alone(stacks: Sequence[Stack]) -> Iterator[Finding]:
    """No stack waits for peers: a few places tell all the same, the others only say where ranks are."""
    if absent := absent_process(stacks):
        yield absent
        return
    told = False
    for stack in stacks:
        place = place_of(stack)
        if place.kind in TELLING_ALONE:
            told = True
            yield _telling(stack, place)
        elif ending := _tearing_down(stack):
            told = True
            yield _ending(stack, ending)
    if not told and any(place_of(stack).frame for stack in stacks):
        lines = dict.fromkeys(f"{_who(stack)} {_stands(place_of(stack))}{_beside(stack)}" for stack in stacks)
        yield unknown(
            f"No rank is known to wait for its peers: {'; '.join(list(lines)[:SHOWN])}.",
            MISSING,
            [Evidence("stack", stack.where, place_of(stack).line) for stack in stacks[:SHOWN]],
        )


def _tearing_down(stack: Stack) -> Thread | None:
    """The thread that destroys or aborts a communicator; a watchdog that does so has a finding of its own."""
    for thread in stack.threads:
        names = " ".join((thread.name, *(frame.name for frame in thread.frames)))
        if _ENDING.search(names) and not _WATCHDOG.search(names):
            return thread
    return None


def _ending(stack: Stack, thread: Thread) -> Finding:
    call = next(frame.name for frame in thread.frames if _ENDING.search(frame.name))
    main = "" if thread is stack.main else f", while its main thread {_stands(place_of(stack))}"
    return _finding(
        stack,
        "hang.teardown",
        f"{_who(stack)} does not get out of {call}{main}: it waits for the device or for peers that have left or do "
        "other things.",
        "Wait for all collectives and destroy the process group on all ranks together before the process ends; after "
        "an error end all ranks instead of aborting one; compare the NCCL version with its known bugs.",
        0.6,
        " < ".join(frame.name for frame in thread.frames[:12]),
        MISSING,
    )


def _telling(stack: Stack, place: Place) -> Finding:
    does, fix = SUB_CAUSES[place.kind]
    cause = f"{_who(stack)} {does} ({place.line}); its peers wait for it in their next collective."
    frame = str(place.frame)
    return _finding(stack, "hang.absent_rank", cause, fix, 0.6, frame, MISSING, sub_cause=place.kind, frame=frame)


def _who(stack: Stack) -> str:
    if stack.rank is not None:
        name = stack.where.rsplit("/", 1)[-1]
        return f"rank {stack.rank} ({stack.label or name})"
    return f"the process of {stack.where}"


def _stands(place: Place) -> str:
    does = {"gpu": "waits for the GPU to synchronize (its stream)", "proxy": "has only NCCL's idle helper threads"}
    where = place.line + (f" ← {place.frame}" if place.user and place.frame and place.frame != place.user else "")
    return f"{does.get(place.kind, 'is')} at {where}"


def _beside(stack: Stack) -> str:
    """What another thread of the process is at work on, while main waits."""
    busy = [one for one in working_threads(stack) if one is not stack.main and one.active]
    return f", and thread {busy[0].name or busy[0].os_id} works in {busy[0].frames[0]}" if busy else ""


def _finding(
    stack: Stack,
    code: str,
    cause: str,
    fix: str,
    confidence: float,
    seen: str,
    missing: Sequence[str] = (),
    **detail: str,
) -> Finding:
    """A finding on one process, of which its own stack alone tells."""
    return Finding(
        code,
        "error",
        cause,
        fix,
        confidence,
        ranks=() if stack.rank is None else (stack.rank,),
        hosts=(stack.host,) if stack.host else (),
        detail=detail,
        evidence=[Evidence("stack", stack.where, seen)],
        missing=missing,
    )


def absent_process(stacks: Sequence[Stack]) -> Finding | None:
    """Most processes wait in one collective, few of the same program stand elsewhere: they are waited for.

    The outermost frame tells that they are of one program, and no launcher or data loader's worker.
    """
    if any(stack.rank is not None or stack.pid is None for stack in stacks):
        return None
    at_peers = [stack for stack in stacks if place_of(stack).waits_for_peers]
    starts = {_start(stack) for stack in at_peers}
    elsewhere = [stack for stack in stacks if stack not in at_peers and _start(stack) in starts]
    ops = sorted({place_of(stack).op for stack in at_peers})
    if not 0 < len(elsewhere) < len(at_peers) or len(ops) > 1:
        return None
    place = place_of(elsewhere[0])
    cause = place.kind if place.kind in SUB_CAUSES else "python"
    names = "process " + ", ".join(str(stack.pid) for stack in elsewhere[:SHOWN])
    return Finding(
        "hang.absent_rank",
        "error",
        f"{len(at_peers)} processes wait in {ops[0]} for {names}, which {SUB_CAUSES[cause][0]} ({place.line}).",
        SUB_CAUSES[cause][1],
        0.65,
        detail={"sub_cause": cause, "pids": [stack.pid for stack in elsewhere], "op": ops[0]},
        evidence=[
            Evidence("stack", f"process {one.pid}, {one.where}", place_of(one).line) for one in elsewhere[:SHOWN]
        ],
        missing=("which ranks these processes are",),
    )


def _start(stack: Stack) -> tuple[str, str]:
    """The outermost frame of the main thread."""
    if not stack.main.frames:
        return "", ""
    frame = stack.main.frames[-1]
    return frame.name, frame.filename


def find_blocked_watchdogs(evidence: EvidenceSet) -> Iterator[Finding]:
    """Watchdog threads that are themselves inside a call that does not return."""
    for stack in evidence.of(Stack):
        for thread in stack.threads:
            names = [frame.name for frame in thread.frames]
            watching = _WATCHDOG.search(" ".join((thread.name, *names)))
            stuck = next((name for name in names if _BLOCKING.search(name)), "")
            if watching and stuck:
                yield _finding(
                    stack,
                    "hang.watchdog_blocked",
                    f"The watchdog of {_who(stack)} is stuck itself, in {stuck}: another thread holds what it waits "
                    "for, or the device does not answer.",
                    "Look at the main thread of that process and at its device; end all ranks together, since abort is "
                    "not collective; TORCH_NCCL_RETHROW_CUDA_ERRORS=0 and a newer NCCL help at the end of a job.",
                    0.7,
                    " < ".join(names[:6]),
                )


RULES = (Rule(("hang.watchdog_blocked",), ("hang",), find_blocked_watchdogs),)

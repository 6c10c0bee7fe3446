"""Stacks of processes whose ranks nobody tells: those of one program, told apart by their process numbers."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.evidence.stacks import Stack
from doctor.rules.places import place_of
from doctor.rules.suspects import SUB_CAUSES
from launcher.common.finding import Evidence, Finding

SHOWN = 8


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

"""A cycle over a lock file and a group: a rank waits for its peers while it holds the lock for which they wait."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.evidence.stacks import Stack
from doctor.rules.places import is_user_code
from doctor.rules.suspects import Suspect, Witnesses
from doctor.rules.waits import WaitGraph, WaitPoint
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding


def lock_cycle(suspects: Sequence[Suspect], point: WaitPoint, graph: WaitGraph, witnesses: Witnesses) -> Finding | None:
    """The cycle, where a rank that waits for the suspects is inside the function in which they wait for the lock."""
    stacks = [witnesses.stacks[one.rank] for one in suspects if one.rank in witnesses.stacks]
    locked = set[tuple[str, str]]().union(*map(_functions, stacks))
    waiting = sorted(graph.waiters(point))
    holders = [rank for rank in waiting if rank in witnesses.stacks and _functions(witnesses.stacks[rank]) & locked]
    if len(holders) != 1:  # one process holds a lock
        return None
    function = sorted(_functions(witnesses.stacks[holders[0]]) & locked)[0][0]
    late = name_ranks([one.rank for one in suspects])
    return Finding(
        "hang.cross_group_cycle",
        "error",
        f"{name_ranks(holders)} waits in {point} for {late} while it is inside {function}, and {late} wait there for "
        "the lock file that it holds.",
        "Make no collective while a lock is held: leave the locked part first, then meet the others.",
        0.8,
        ranks=tuple(holders),
        detail={"sub_cause": "file_lock", "cycle": [*holders, *(one.rank for one in suspects)]},
        evidence=[
            *(piece for one in suspects[:4] for piece in one.evidence),
            *(Evidence("stack", f"rank {rank}", str(witnesses.stacks[rank].main.frames[0])) for rank in holders),
        ],
    )


def _functions(stack: Stack) -> set[tuple[str, str]]:
    """The functions of the user's own that the main thread is in; every rank is in the module itself."""
    own = (frame for frame in stack.main.frames if is_user_code(frame) and frame.name != "<module>")
    return {(frame.name, frame.filename) for frame in own}

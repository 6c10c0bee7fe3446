"""What findings on hangs show: the questions that people ask by hand, stuck calls and where they were made. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.evidence.rank_table import Frame
from doctor.rules.fleet import Group
from doctor.rules.places import is_user_code
from doctor.rules.waits import WaitGraph, WaitPoint
from doctor.text import fold
from launcher.common.finding import Evidence

SHOWN = 8


def decisions(graph: WaitGraph, last: str, answer: str) -> list[str]:
    """The tree that people follow by hand, with the branch taken."""
    everybody = len(graph.stuck_in) == len(graph.fleet.world)
    one_place = len(graph.points) == 1
    return [
        f"are all ranks stuck? {'yes' if everybody else f'{len(graph.stuck_in)} of {len(graph.fleet.world)}'}",
        f"in the same call? {'yes' if one_place else f'no: in {len(graph.points)} calls'}",
        f"{last} {answer}",
    ]


def waiting_in(graph: WaitGraph) -> list[Evidence]:
    """For each stuck call who is in it and where it was called."""
    pieces = []
    for point in graph.points[:SHOWN]:
        ranks, call = sorted(graph.waiters(point)), point.call()
        line = f" at {_users(call.frames)}" if call and call.frames else ""
        where = f"{fold(ranks)} #{point.seq}"
        pieces.append(Evidence("flight_recorder", where, f"waiting in {_called(point)} of {point.group.label}{line}"))
    return pieces


def _called(point: WaitPoint) -> str:
    call = point.call()
    return str(call.signature) if call else point.op


def _users(frames: Sequence[Frame]) -> Frame:
    """The innermost frame of the user's code; the outermost where there is none."""
    return next(filter(is_user_code, frames), frames[-1])


def frames_at(graph: WaitGraph, rank: int) -> list[Evidence]:
    return [piece for point in graph.stuck_in[rank] for piece in frames_of(point.group, point.seq, [rank])]


def frames_of(group: Group, seq: int, ranks: Sequence[int]) -> list[Evidence]:
    pieces = []
    for rank in ranks[:SHOWN]:
        call = group.seen[rank].newest_call(seq) if rank in group.seen else None
        if call and call.frames:
            where = f"{group.seen[rank].table.where} #{seq}"
            pieces.append(Evidence("flight_recorder", where, f"{call.signature} at {_users(call.frames)}"))
    return pieces

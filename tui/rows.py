"""What tables show of ranks, as text in columns: for the screens, and for one frame without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style

from launcher.spec import format_coordinate
from tui.metrics import BY_KEY
from tui.snapshot import STATES, JobInfo, Snapshot

PLAIN = Style()
_ALARMED = Style(color="#ff8c5a", bold=True)
_COLUMN_METRICS = [BY_KEY[key] for key in ("lag", "step_s", "data", "age", "util", "memory", "temperature")]


@dataclass(frozen=True)
class Column:
    """`width` in cells; 0 takes what is left."""

    label: str
    width: int = 0
    right: bool = False


@dataclass(frozen=True)
class Row:
    """`key` names the row across updates."""

    key: str
    cells: Sequence[str]
    style: Style = PLAIN


def coordinate(job: JobInfo, rank: int) -> str:
    """`pp0/tp3`, empty where the mesh does not make up the world."""
    return format_coordinate(job.layout.coordinate(rank)) if job.layout is not None else ""


def rank_rows(snapshot: Snapshot, ranks: list[int]) -> list[Row]:
    """The lines of the table of the worst ranks."""
    texts = [[metric.text(value) for value in metric.values(snapshot)[ranks].tolist()] for metric in _COLUMN_METRICS]
    steps = ["–" if step != step else f"{step:.0f}" for step in snapshot.step[ranks].tolist()]
    return [
        Row(
            str(rank),
            [
                str(rank),
                snapshot.job.host_of(rank),
                coordinate(snapshot.job, rank),
                STATES[int(snapshot.state[rank])],
                steps[place],
                *(column[place] for column in texts),
            ],
            _ALARMED if rank in snapshot.alarmed else PLAIN,
        )
        for place, rank in enumerate(ranks)
    ]


COLUMNS = (
    Column("RANK", 6, right=True),
    Column("HOST", 10),
    Column("COORDINATE"),
    Column("STATE", 10),
    Column("STEP", 8, right=True),
    Column("LAG", 9, right=True),
    Column("STEP TIME", 9, right=True),
    Column("DATA", 5, right=True),
    Column("QUIET", 7, right=True),
    Column("USE", 5, right=True),
    Column("MEM", 5, right=True),
    Column("TEMP", 7, right=True),
)

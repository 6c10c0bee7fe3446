"""nodes/<node_rank>/agent.json: how a node's part of the job stands, rewritten whole by its agent every second.

The supervisor compares states, not events: whoever reads the newest document knows all that there is to know, so a
supervisor that starts in the middle (adoption) needs no history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from launcher.common.binding import RankReport
from launcher.common.fields import from_fields

NodeState = Literal["starting", "running", "ended"]


@dataclass(frozen=True)
class RankStatus:
    """One rank's process. Times are seconds since the epoch by the node's own clock."""

    rank: int
    local_rank: int
    pid: int | None = None
    start_time: float | None = None
    ended: float | None = None  # when the process was seen to end
    exit_status: int | None = None  # negative: the signal's number
    error: str = ""  # last line of its traceback
    traceback: str = ""
    step: int | None = None
    loss: float | None = None
    tokens_per_s: float | None = None
    step_s: float | None = None
    progress_time: float | None = None
    device: str | None = None  # UUID or index; from its environment, or where the driver tells, the one that it uses
    cpus: str | None = None  # that it may run on
    hca: str | None = None  # its NCCL_IB_HCA

    def report(self, host: str) -> RankReport:
        return RankReport(self.rank, host, self.device, self.cpus, self.hca)


@dataclass(frozen=True)
class AgentStatus:
    """The whole document. `beat` grows with every write: an agent whose beat stands still is gone or stuck."""

    node_rank: int
    attempt: int
    host: str
    state: NodeState
    pid: int
    start_time: float
    beat: int = 0
    time: float = 0.0
    launcher_pid: int | None = None
    exit_status: int | None = None
    message: str = ""  # why it ended where no rank says it: tail of torchrun's own output
    stopped: bool = False  # ended because it was told to
    ranks: Sequence[RankStatus] = ()
    survivors: Sequence[int] = ()  # pids that outlived SIGKILL
    versions: Mapping[str, str] = field(default_factory=dict)
    collectable: Mapping[str, bool] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"schema": 1, **asdict(self)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> AgentStatus:
        """Raises TypeError where the document lacks a field; unknown keys are passed over."""
        ranks = tuple(from_fields(RankStatus, rank) for rank in document.get("ranks", ()))
        return from_fields(cls, document, ranks=ranks)

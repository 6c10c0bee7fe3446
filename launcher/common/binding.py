"""Where a rank belongs and where it is: its device, CPUs and NICs, as planned and as its process shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.common.fields import from_fields


@dataclass(frozen=True)
class Binding:
    """What one local rank is bound to; None where the hardware does not tell. `cpus` is a list as the kernel writes it.

    `handle` is what the variable of visible devices calls the device: its UUID, or its index where it has none known.
    `nic` is the rank's own among `near_nics`, the nearest to its device. `why` says where the CPUs come from, or why
    there are none.
    """

    local_rank: int
    device: str | None
    numa: int | None
    cpus: str | None
    nic: str | None
    why: str
    handle: str | None = None
    bdf: str | None = None
    near_nics: Sequence[str] = ()

    def line(self) -> str:
        """`GPU0, 0000:1b:00.0, NUMA 0, CPUs 0-11,24-35, NIC mlx5_0 (…)`, as mpirun's binding report."""
        known = [
            self.device,
            self.bdf,
            None if self.numa is None else f"NUMA {self.numa}",
            f"CPUs {self.cpus}" if self.cpus else "not bound",
            f"NIC {self.nic}" if self.nic else None,
        ]
        return f"{', '.join(filter(None, known))} ({self.why})"

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Binding:
        """Raises TypeError where the document lacks a field; unknown keys are passed over."""
        return from_fields(cls, document)


@dataclass(frozen=True)
class PlannedRank:
    """A rank's place by the plan; `coordinate` as printed, `binding` None where nothing was to be bound."""

    rank: int
    host: str
    coordinate: str
    binding: Binding | None = None


@dataclass(frozen=True)
class RankReport:
    """What one rank's process shows; None where it does not tell. `hca` is its NCCL_IB_HCA."""

    rank: int
    host: str
    device: str | None = None
    cpus: str | None = None
    hca: str | None = None


def index_list(text: str) -> list[int]:
    """`0-3,7` as numbers; `N/A` and other words are none."""
    spans = (re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part) for part in text.split(","))
    return [number for span in spans if span for number in range(int(span[1]), int(span[2] or span[1]) + 1)]

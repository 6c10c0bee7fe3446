"""Traffic by axis: from the command line, or counted in what the flight recorder kept of a job. Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.errors import InputError
from launcher.placement.axes import groups_of
from launcher.placement.collectives import bus_factor, rounds
from launcher.placement.cost import Volume
from launcher.spec import AXES, EXPERT_AXIS, MeshSpec
from workloads.common.config import PRESETS
from workloads.common.costs import Case, Sizes
from workloads.common.states import rows_for

EXAMPLE = "for example tp=60e9,dp_shard=49e9:64 (bytes, calls), a job, or a preset as 8B"
DATA_AXES = ("dp_replicate", "dp_shard")
SHARDED_VIEWS = {"ep_shard": "dp_shard", "tokens": "dp_shard"}  # groups that the table counts apart
BYTES = {"Byte": 1, "Char": 1, "Bool": 1, "Half": 2, "BFloat16": 2, "Short": 2, "Int": 4, "Float": 4, "ComplexFloat": 8}
LARGE = 8  # bytes of an element of any other type (Long, Double)
NAMES = (
    ("reduce_scatter", "reduce_scatter"), ("all_gather", "all_gather"), ("allgather", "all_gather"),
    ("all_reduce", "all_reduce"), ("allreduce", "all_reduce"), ("all_to_all", "all_to_all"),
    ("alltoall", "all_to_all"), ("broadcast", "broadcast"), ("send", "send"),
)  # fmt: skip


def parse_traffic(text: str, mesh: MeshSpec) -> dict[str, Volume]:
    """`tp=60e9,dp_shard=49e9:64` -> bytes and, after a colon, all-reduces, by axis. Raises InputError."""
    traffic = {}
    for part in text.split(","):
        axis, _, value = part.strip().partition("=")
        sent, _, calls = value.partition(":")
        if axis not in mesh.degrees:
            raise InputError(f"{axis!r} is no axis of {mesh}", where="--traffic")
        try:
            volume = Volume(float(sent), float(calls or 0) * rounds("all_reduce", mesh.degrees[axis]))
        except ValueError:
            volume = Volume(math.nan)
        if not (0 <= volume.bytes < math.inf and 0 <= volume.messages < math.inf):
            raise InputError(f"{part!r} is not AXIS=BYTES", where="--traffic", help=EXAMPLE)
        traffic[axis] = volume
    return traffic


def of_model(name: str, mesh: MeshSpec, batch: int | None, seq: int) -> dict[str, Volume]:
    """What a preset of the bundled workloads sends, by their table. `batch` is the global number of sequences; default:
    one for each data-parallel rank, with pipelines four times as many as stages. Raises InputError."""
    if foreign := [axis for axis in mesh.degrees if axis not in (*AXES, EXPERT_AXIS)]:
        raise InputError(f"the table has no axis {foreign[0]!r}", where="--traffic", help=EXAMPLE)
    data, stages = (math.prod(mesh.degrees.get(axis, 1) for axis in axes) for axes in (DATA_AXES, ("pp",)))
    whole = batch or data * (4 * stages if stages > 1 else 1)
    case = Case(
        Sizes.of(PRESETS[name]),
        mesh.degrees,
        rows_for(mesh.degrees),
        whole,
        seq,
        micro_batches=max(1, whole // data) if stages > 1 else 1,
    )
    volumes: dict[str, Volume] = {}
    for part in case.traffic():
        axis = SHARDED_VIEWS.get(part.axis, part.axis)
        before = volumes.get(axis, Volume(0.0))
        messages = part.calls * rounds(part.exchange.collective, part.members)
        volumes[axis] = Volume(before.bytes + part.sent, before.messages + messages)
    return {axis: volume for axis, volume in volumes.items() if axis in mesh.degrees}


@dataclass(frozen=True)
class Counted:
    """What a rank sent in a step by axis, the most of all ranks that were read."""

    mesh: MeshSpec
    volumes: Mapping[str, Volume]
    ranks: int
    job: str

    def on(self, mesh: MeshSpec) -> dict[str, Volume]:
        """For a mesh of the same degrees. Raises InputError for another one: its traffic would be different."""
        ours, theirs = ({a: d for a, d in m.degrees.items() if d > 1} for m in (mesh, self.mesh))
        if ours != theirs:
            raise InputError(
                f"{self.job} ran on {self.mesh}: its traffic is not that of {mesh}", where="--traffic", help=EXAMPLE
            )
        return dict(self.volumes)


def count(mesh: MeshSpec, dumps: Mapping[int, tuple[Any, Any, Sequence[float]]], job: str) -> Counted:
    """`dumps` by rank: the recorder's document, the process' view of its groups (or None), times of its steps."""
    axes = {axis: {rank: set(group) for group in groups_of(mesh, axis) for rank in group} for axis in mesh.degrees}
    most: dict[str, Volume] = {}
    for rank, (document, view, times) in dumps.items():
        members = group_members(document, view)
        steps: dict[int, dict[str, Volume]] = {}
        for entry in whole_steps(document, times):
            group = members.get(str((entry.get("process_group") or ("",))[0]), ())
            axis, op = axis_of(set(group), rank, axes), op_of(str(entry.get("profiling_name", "")))
            if axis and op:
                sent = steps.setdefault(bisect_left(times, created(entry)), {})
                before = sent.get(axis, Volume(0.0))
                sent[axis] = Volume(
                    before.bytes + tensor_bytes(entry, op) * bus_factor(op, len(group)),
                    before.messages + rounds(op, len(group)),
                )
        for axis in {axis for sent in steps.values() for axis in sent}:
            volume = typical([sent.get(axis, Volume(0.0)) for sent in steps.values()])
            most[axis] = max(most.get(axis, volume), volume, key=lambda each: each.bytes)
    return Counted(mesh, most, len(dumps), job)


def created(entry: Mapping[str, Any]) -> float:
    """Seconds since the epoch."""
    return float(entry.get("time_created_ns") or 0) / 1e9


def whole_steps(document: Mapping[str, Any], times: Sequence[float]) -> list[Mapping[str, Any]]:
    """The entries of steps that the recorder kept from their begin to their end; of all where no step is whole."""
    entries: list[Mapping[str, Any]] = [entry for entry in document.get("entries", ()) if isinstance(entry, dict)]
    first, last = min(map(created, entries), default=0.0), max(map(created, entries), default=0.0)
    ends = [time for time in times if first <= time <= last]
    return [entry for entry in entries if ends[0] < created(entry) <= ends[-1]] if len(ends) > 1 else entries


def typical(volumes: Sequence[Volume]) -> Volume:
    """The median by bytes: a step beside which an evaluation or a checkpoint ran is none."""
    return sorted(volumes, key=lambda each: each.bytes)[(len(volumes) - 1) // 2]


def group_members(document: Mapping[str, Any], view: Mapping[str, Any] | None) -> dict[str, tuple[int, ...]]:
    """Members by the group's name: as the process knows them (gloo's dumps do not tell), else as the dump does."""
    known = {str(name): tuple(group["ranks"]) for name, group in ((view or {}).get("groups") or {}).items()}
    for name, config in (document.get("pg_config") or {}).items():
        ranks = tuple(int(rank) for rank in re.findall(r"\d+", str(config.get("ranks", ""))))
        if ranks and str(name) not in known:
            known[str(name)] = ranks
    return known


def axis_of(members: set[int], rank: int, axes: Mapping[str, Mapping[int, set[int]]]) -> str | None:
    """The axis along which a group lies; of a group over several axes the outermost one, as of FSDP over dp and cp."""
    exact = next((axis for axis, groups in axes.items() if groups[rank] == members and len(members) > 1), None)
    inside = (axis for axis, groups in axes.items() if len(groups[rank]) > 1 and groups[rank] <= members)
    return exact or next(inside, None)


def op_of(name: str) -> str | None:
    return next((op for part, op in NAMES if part in name), None)


def tensor_bytes(entry: Mapping[str, Any], op: str) -> float:
    """Of the whole tensor: what an all-gather puts out, what all others take in."""
    side = "output" if op == "all_gather" else "input"
    sizes, types = entry.get(f"{side}_sizes") or (), entry.get(f"{side}_dtypes") or ()
    return float(sum(math.prod(size) * BYTES.get(kind, LARGE) for size, kind in zip(sizes, types, strict=False)))

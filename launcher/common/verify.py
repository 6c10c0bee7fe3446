"""The plan against what the ranks' processes show after start: findings where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from launcher.common.binding import Binding, PlannedRank, RankReport, index_list
from launcher.common.finding import Evidence, Finding


def verify(plan: Sequence[PlannedRank], reports: Sequence[RankReport]) -> list[Finding]:
    """mesh.rank_map_differs, mesh.device_order, mesh.nic_far and mesh.numa_binding, the gravest first.

    A rank on another host is judged by its host only. A rank that did not report is named in `missing`; with no report
    at all there is nothing to say.
    """
    pairs = list(_pairs(plan, reports))
    silent = [planned.rank for planned in plan if planned.rank not in {report.rank for report in reports}]
    settled = [pair for pair in pairs if pair.report.host == pair.planned.host]
    found = [_moved(pairs, silent), _device_order(settled), _nic_far(settled), _numa_binding(settled)]
    return [finding for finding in found if finding is not None]


@dataclass(frozen=True)
class _Pair:
    planned: PlannedRank
    report: RankReport

    @property
    def binding(self) -> Binding:
        assert self.planned.binding
        return self.planned.binding


def _pairs(plan: Sequence[PlannedRank], reports: Sequence[RankReport]) -> Iterator[_Pair]:
    by_rank = {planned.rank: planned for planned in plan}
    for report in reports:
        if report.rank in by_rank:
            yield _Pair(by_rank[report.rank], report)


def _finding(code: str, pairs: Sequence[_Pair], cause: str, fix: str, lines: Sequence[str]) -> Finding:
    """A warning about the ranks of `pairs`, with one line of evidence for each of the first ten."""
    return Finding(
        code,
        "warning",
        cause,
        fix,
        0.95,
        ranks=tuple(pair.planned.rank for pair in pairs),
        hosts=tuple(dict.fromkeys(pair.report.host for pair in pairs)),
        coordinates=tuple(pair.planned.coordinate for pair in pairs),
        evidence=tuple(
            Evidence("binding", f"rank {pair.planned.rank}", line)
            for pair, line in zip(pairs[:10], lines, strict=False)
        ),
    )


def _moved(pairs: Sequence[_Pair], silent: Sequence[int]) -> Finding | None:
    moved = [pair for pair in pairs if pair.report.host != pair.planned.host]
    if not moved:
        return None
    first = moved[0]
    found = _finding(
        "mesh.rank_map_differs",
        moved,
        f"{len(moved)} of {len(pairs) + len(silent)} ranks run on other hosts than planned: rank {first.planned.rank} "
        f"is on {first.report.host} instead of {first.planned.host}; the rendezvous gave nodes other ranks",
        "use static rendezvous with --node-rank (dlaunch does), not c10d, which sorts host names as strings",
        [f"planned on {pair.planned.host}, runs on {pair.report.host}" for pair in moved],
    )
    return replace(found, severity="error", missing=tuple(f"rank {rank} did not report" for rank in silent))


def _bound(pairs: Sequence[_Pair]) -> list[_Pair]:
    return [pair for pair in pairs if pair.planned.binding is not None]


def _device_order(pairs: Sequence[_Pair]) -> Finding | None:
    """Another device than planned."""
    wrong = [
        pair
        for pair in _bound(pairs)
        if pair.report.device and pair.binding.handle and not is_device(pair.report.device, pair.binding)
    ]
    if not wrong:
        return None
    first = wrong[0]
    names = _device_names(pairs)
    return _finding(
        "mesh.device_order",
        wrong,
        f"{len(wrong)} ranks use other devices than planned: rank {first.planned.rank} on {first.report.host} uses "
        f"{names.get(first.report.device or '', first.report.device)} instead of {names[first.binding.handle or '']}",
        "give devices by UUID in CUDA_VISIBLE_DEVICES, and let each rank use the ordinal of its local rank",
        [f"planned {pair.binding.handle}, uses {pair.report.device}" for pair in wrong],
    )


def is_device(name: str, binding: Binding) -> bool:
    """Whether a UUID or index names the planned device."""
    return name in (binding.handle, (binding.device or "").removeprefix("GPU"))


def _device_names(pairs: Sequence[_Pair]) -> Mapping[str, str]:
    """`GPU-1f… (GPU3)` by UUID."""
    handles = {pair.binding.handle: pair.binding.device for pair in _bound(pairs) if pair.binding.handle}
    return {handle: f"{handle} ({device})" for handle, device in handles.items()}


def _nic_far(pairs: Sequence[_Pair]) -> Finding | None:
    """NCCL_IB_HCA leaves out all NICs near the device."""
    wrong = [
        pair
        for pair in _bound(pairs)
        if pair.report.hca
        and pair.binding.near_nics
        and not any(hca_allows(pair.report.hca, nic) for nic in pair.binding.near_nics)
    ]
    if not wrong:
        return None
    first = wrong[0]
    near = ", ".join(first.binding.near_nics)
    return _finding(
        "mesh.nic_far",
        wrong,
        f"{len(wrong)} ranks may not use the NICs near their devices: NCCL_IB_HCA is {first.report.hca}, near rank "
        f"{first.planned.rank} on {first.report.host} are {near}",
        "name all NICs in NCCL_IB_HCA, or let NCCL choose by removing it",
        [f"NCCL_IB_HCA={pair.report.hca}, near are {', '.join(pair.binding.near_nics)}" for pair in wrong],
    )


def hca_allows(selection: str, nic: str) -> bool:
    """NCCL_IB_HCA's rules: a list of prefixes, `=` before it for whole names, `^` for those to leave out; ports after
    a colon."""
    without = selection.startswith("^")
    rest = selection.removeprefix("^")
    whole = rest.startswith("=")
    names = [part.partition(":")[0] for part in rest.removeprefix("=").split(",") if part]
    listed = any(nic == name if whole else nic.startswith(name) for name in names)
    return listed != without


def _numa_binding(pairs: Sequence[_Pair]) -> Finding | None:
    """Ranks that may run on CPUs outside of those near their device."""
    wrong = [
        pair
        for pair in _bound(pairs)
        if pair.binding.cpus
        and pair.report.cpus
        and not set(index_list(pair.report.cpus)) <= set(index_list(pair.binding.cpus))
    ]
    if not wrong:
        return None
    first = wrong[0]
    return _finding(
        "mesh.numa_binding",
        wrong,
        f"{len(wrong)} ranks may run on CPUs far from their devices: rank {first.planned.rank} on {first.report.host} "
        f"has CPUs {first.report.cpus}, near {first.binding.device or 'its memory'} are {first.binding.cpus}",
        "bind each rank to its NUMA node (dlaunch does; torchrun --numa-binding node)",
        [f"has CPUs {pair.report.cpus}, near are {pair.binding.cpus}" for pair in wrong],
    )

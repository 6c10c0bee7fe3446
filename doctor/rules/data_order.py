"""What ranks read and draw: shards that are the same, an order that never changes, seeds that must agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.job import JobFacts
from doctor.evidence.progress import ProgressSeries
from doctor.rules import Rule
from doctor.rules.mesh_network import other_groups
from doctor.rules.straggler import series_of
from doctor.text import fold, name_ranks
from launcher.common.finding import Evidence, Finding

DATA_AXES = ("dp_replicate", "dp_shard")
MIN_STEPS = 3


def find_data_faults(evidence: EvidenceSet) -> Iterator[Finding]:
    """Faults that show in the samples and seeds of progress records; those need the job's coordinates."""
    series, jobs = series_of(evidence), evidence.of(JobFacts)
    yield from _unshuffled(series)
    if jobs and not any(other_groups(evidence)):  # the plan's coordinates are not those that the script uses
        yield from _duplicates(series, jobs[-1])
        yield from _seeds(series, jobs[-1])


def _duplicates(series: Mapping[int, ProgressSeries], job: JobFacts) -> Iterator[Finding]:
    """Ranks at different places of the data axes that took the same samples, step by step."""
    takers: defaultdict[tuple[tuple[int, ...], ...], dict[tuple[int, ...], int]] = defaultdict(dict)
    for rank, one in series.items():
        shard = tuple(job.coordinates.get(rank, {}).get(axis, 0) for axis in DATA_AXES)
        if len(one.samples) >= MIN_STEPS and any(one.samples):
            takers[one.samples[:MIN_STEPS]].setdefault(shard, rank)
    for shards in takers.values():
        if len(shards) > 1:
            ranks = tuple(sorted(shards.values()))
            yield Finding(
                "data.duplicate_shards",
                "error",
                f"{name_ranks(ranks)} train on the same samples at every step, though they are different "
                "data ranks: the batch is smaller than it seems.",
                "Give each data rank its own shard: DistributedSampler(num_replicas, rank) with the data-parallel rank "
                "and size, not those of another group.",
                0.95,
                ranks=ranks,
                evidence=[
                    Evidence("progress", series[rank].where, f"samples {series[rank].samples[0][:8]}") for rank in ranks
                ],
            )


def _unshuffled(series: Mapping[int, ProgressSeries]) -> Iterator[Finding]:
    """All ranks that started over took their samples in the order of the first epoch."""
    periods = {rank: period for rank, one in series.items() if (period := _period(one.samples)) is not None}
    if not any(periods.values()) and (samples := _in_common(list(series.values()))):
        periods = dict.fromkeys(series, samples)  # an epoch that is no whole number of steps
    again = {rank: period for rank, period in periods.items() if period}
    if again and len(again) == len(periods):
        steps = min(again.values())
        yield Finding(
            "data.order_not_shuffled",
            "warning",
            f"{name_ranks(sorted(again))} take the same samples in the same order in every epoch of "
            f"{steps} steps.",
            "Call sampler.set_epoch(epoch) at the start of each epoch.",
            0.9,
            ranks=tuple(sorted(again)),
            detail={"steps": steps},
            evidence=[Evidence("progress", series[rank].where, f"samples repeat after {again[rank]} steps")
                      for rank in sorted(again)[:4]],
        )  # fmt: skip


def _in_common(series: Sequence[ProgressSeries]) -> int:
    """Whole steps after which all ranks' samples, one after the other, repeat exactly; 0 when they do not."""
    shared = list(zip(*(one.samples for one in series), strict=False))
    order = [[sample] for step in shared for batch in dict.fromkeys(step) for sample in batch]
    period = _period(order) or 0
    return -(-period * len(shared) // len(order)) if period else 0


def _period(samples: Sequence[Sequence[int]]) -> int | None:
    """Steps after which the samples repeat exactly; 0 when a sample came again in another order, None when none did."""
    first_at: dict[int, int] = {}
    for step, batch in enumerate(samples):
        for sample in batch:
            if sample in first_at and first_at[sample] != step:
                period = step - first_at[sample]
                pairs = list(zip(samples, samples[period:], strict=False))
                same = len(pairs) >= 2 and all(left == right for left, right in pairs)
                return period if same else 0
            first_at[sample] = step
    return None


def _seeds(series: Mapping[int, ProgressSeries], job: JobFacts) -> Iterator[Finding]:
    """Ranks of one tensor group that draw from different seeds."""
    groups: defaultdict[tuple[tuple[str, int], ...], dict[int, tuple[int, ...]]] = defaultdict(dict)
    for rank, one in series.items():
        place = tuple((axis, index) for axis, index in job.coordinates.get(rank, {}).items() if axis != "tp")
        if one.seeds and job.mesh.get("tp", 1) > 1:
            groups[place][rank] = one.seeds
    odd = []
    for members in groups.values():
        shortest = min(map(len, members.values()))
        cut = {rank: seeds[:shortest] for rank, seeds in members.items()}
        usual = max(cut.values(), key=lambda seeds: (list(cut.values()).count(seeds), seeds == cut[min(cut)]))
        odd += [rank for rank, seeds in cut.items() if seeds != usual]
    if odd:
        ranks = tuple(sorted(odd))
        yield Finding(
            "rng.group_mismatch",
            "error",
            f"{name_ranks(ranks)} draw from another seed than the rest of their tensor group: replicated "
            "parts (dropout, initialisation) differ inside the group.",
            "Seed tensor-parallel ranks alike (a seed made from the data rank only).",
            0.9,
            ranks=ranks,
            detail={"groups": fold(ranks)},
        )


RULES = (Rule(("data.duplicate_shards", "data.order_not_shuffled", "rng.group_mismatch"), (), find_data_faults),)

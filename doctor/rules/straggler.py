"""Who is slow: by arrival order at collectives and by the parts of a step that waiting does not hide."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from statistics import median

from doctor.evidence import EvidenceSet
from doctor.evidence.processes import ProcessState
from doctor.evidence.progress import ProgressSeries
from doctor.rules import Rule, healthy
from doctor.rules.arrival import Lateness, lateness_of, onset
from doctor.rules.fleet import Fleet, Group, fleet_of
from doctor.rules.straggler_causes import CAUSES, explained
from doctor.rules.suspects import Witnesses, witnesses_of
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding

BLAME_SHARE, NOISE_S = 0.05, 60.0  # of the time between the first and the last call, where that is a minute
BLAME_RATIO = 3.0  # over the next rank
NOTICEABLE_S = 1e-3  # less per call is noise
DATA_RATIO = 2.0
DATA_SHARE = 0.1  # of a step
MIN_STEPS = 4
WORK_RATIO, WORK_CORES = 2.0, 0.3  # of cores in use, over what is usual
_STAGE = re.compile(r"pp\d+")
_EXPERTS = re.compile(r"(?i)(?:^|[^a-z])(?:ep|expert\w*)(?:[^a-z]|$)")


def find_stragglers(evidence: EvidenceSet) -> Iterator[Finding]:
    """One finding for the slowest rank or host, by data loading first: that explains its late arrival."""
    fleet = evidence.once(fleet_of)
    series = series_of(evidence)
    by_data = _by_data(series)
    level = [group for group in fleet.groups if not _spans_stages(group, fleet)]
    late = [one for group in level if (one := lateness_of(group, fleet))]
    by_arrival = _by_arrival(late, fleet, evidence.once(witnesses_of))
    if by_data and (by_arrival is None or set(by_data.ranks) & set(by_arrival.ranks)):
        yield by_data
    elif by_arrival:
        yield explained(by_arrival, evidence)
    elif by_work := _by_work(evidence, fleet):
        yield by_work
    elif late or len(series) > 1:
        calls = sum(len(one.seqs) for one in late)
        yield healthy(f"no rank stands out by arrival at {calls} calls or by its steps' parts ({len(series)} ranks)")


def _spans_stages(group: Group, fleet: Fleet) -> bool:
    """Whether its members are stages of a pipeline: those end their steps one after the other by design."""
    places = {part for rank in group.members for part in fleet.coordinates.get(rank, "").split("/")}
    return len([part for part in places if _STAGE.fullmatch(part)]) > 1


def series_of(evidence: EvidenceSet) -> dict[int, ProgressSeries]:
    """The longest series of each rank."""
    series: dict[int, ProgressSeries] = {}
    for one in sorted(evidence.of(ProgressSeries), key=lambda one: (len(one.steps), one.where)):
        if one.rank is not None:
            series[one.rank] = one
    return dict(sorted(series.items()))


def _by_arrival(late: Sequence[Lateness], fleet: Fleet, witnesses: Witnesses) -> Finding | None:
    """The worst of all groups, hosts before ranks: a slow host makes all its ranks slow."""
    found: list[tuple[float, Finding, Group]] = []
    for one in late:
        ranks_per_host = len(one.late) / max(1, len(fleet.hosts_of(one.late)))
        if len(fleet.hosts_of(one.late)) > 1 and ranks_per_host > 1:
            found += _worst(one.by_host(fleet.hosts), fleet, witnesses, by_host=True)
        found += _worst(one, fleet, witnesses, by_host=False)
    if not found:
        return None
    worst = max(found, key=lambda one: one[0])[1]
    return _of_whole_host(worst, found, fleet) or worst


def _of_whole_host(worst: Finding, found: Sequence[tuple[float, Finding, Group]], fleet: Fleet) -> Finding | None:
    """The host of the worst rank, where each of its ranks is late in a group with other hosts, and none in one within
    the host: there they would wait for one of their own."""
    host = fleet.hosts.get(worst.ranks[0], "")
    ranks = tuple(sorted(rank for rank, its in fleet.hosts.items() if its == host))
    ours = [(finding, group) for _, finding, group in found if set(finding.ranks) <= set(ranks)]
    alone = {finding.ranks[0] for finding, group in ours if not set(group.members) <= set(ranks)}
    within = any(set(group.members) <= set(ranks) for _, group in ours)
    if worst.code != "straggler.rank" or within or len(ranks) < 2 or not set(ranks) <= alone:
        return None
    return replace(
        worst,
        code="straggler.node",
        cause=f"Host {host} ({name_ranks(ranks)}) is slow: each of its ranks comes last in its group. {worst.cause}",
        ranks=ranks,
    )


def _worst(one: Lateness, fleet: Fleet, witnesses: Witnesses, by_host: bool) -> list[tuple[float, Finding, Group]]:
    blame = one.blame()
    ordered = sorted(blame, key=lambda rank: blame[rank], reverse=True)
    worst = ordered[0]
    second = blame[ordered[1]] if len(ordered) > 1 else 0.0
    stands_out = blame[worst] > BLAME_RATIO * second and blame[worst] > NOTICEABLE_S * len(one.seqs)
    if one.span_s <= 0 or blame[worst] < _least(one.span_s) or not stands_out or not one.persists(worst):
        return []
    finding = _arrival_finding(worst, blame[worst], one, fleet, witnesses, by_host)
    return [(blame[worst] / one.span_s + (0.01 if by_host else 0), finding, one.group)]


def _least(span_s: float) -> float:
    """Seconds of waiting that count: in a short time more of it is chance, by the root of the time, thrice at most."""
    return BLAME_SHARE * span_s * min(3.0, max(1.0, math.sqrt(NOISE_S / span_s)))


def _arrival_finding(
    worst: int, blamed_s: float, one: Lateness, fleet: Fleet, witnesses: Witnesses, by_host: bool
) -> Finding:
    host = fleet.hosts.get(worst, "")
    ranks = tuple(rank for rank in one.group.members if by_host and fleet.hosts.get(rank) == host) or (worst,)
    start = onset(one.late[worst])
    since = ""
    if start is not None:
        at = datetime.fromtimestamp(one.times[start], timezone.utc)
        since = f", since call {one.seqs[start]} at {at:%H:%M:%S} UTC"
    suspect = witnesses.suspect(worst)
    code = "straggler.node" if by_host else _code_of(suspect.sub_cause, one.group.kind)
    who = f"Host {host} ({name_ranks(ranks)})" if by_host else name_ranks(ranks)
    share = min(1.0, blamed_s / one.span_s)
    at_work = suspect.place is not None and not suspect.place.waits_for_peers
    return Finding(
        code,
        "warning",
        f"{who} comes last to the collectives of {one.group.label}: the others waited {blamed_s:.2f} s of "
        f"{one.span_s:.2f} s for it alone ({share:.0%}){since}."
        + (f" When looked at, rank {worst} {suspect.does}." if at_work else ""),
        "Compare its clocks, temperature, CPU load, NUMA binding and network with a host that is not late: dlaunch "
        "preflight; py-spy on it shows which part of its step is long.",
        0.9 if not one.aligned else 0.8,
        ranks=ranks,
        detail={
            "share": round(share, 3),
            "blamed_s": round(blamed_s, 3),
            "calls": len(one.seqs),
            "group": one.group.kind,
        }
        | ({"since_seq": one.seqs[start], "time_since": one.times[start]} if start is not None else {}),
        evidence=[_typical(one, rank) for rank in (worst, *(other for other in one.late if other != worst))[:3]],
    )


def _code_of(sub_cause: str, group: str) -> str:
    """A rank that comes late out of its experts has more tokens than its peers: nothing else differs within a layer."""
    if _EXPERTS.search(group):
        return "straggler.expert_imbalance"
    return {"checkpoint": "straggler.checkpoint", "gc": "straggler.gc"}.get(sub_cause, "straggler.rank")


def _typical(one: Lateness, rank: int) -> Evidence:
    values = sorted(one.late[rank])
    text = f"{1e3 * median(values):+.1f} ms at the median call, {1e3 * values[-1]:+.1f} ms at most"
    return Evidence("flight_recorder", f"rank {rank}, {len(one.seqs)} calls of {one.group.label}", text)


def _by_data(series: Mapping[int, ProgressSeries]) -> Finding | None:
    """A rank whose own time for data is long: loading is not hidden by waiting for peers."""
    typical = {rank: value for rank, one in series.items() if (value := _median(one.own_data_s)) is not None}
    if len(typical) < 2:
        return None
    worst = max(typical, key=lambda rank: typical[rank])
    usual = median([value for rank, value in typical.items() if rank != worst])
    step = _median(series[worst].step_s) or 0.0
    mean = _mean(series[worst].own_data_s)
    others = median([_mean(one.own_data_s) for rank, one in series.items() if rank != worst])
    steady = typical[worst] > DATA_RATIO * usual and typical[worst] - usual > DATA_SHARE * step
    bursts = mean > DATA_RATIO * others and mean - others > DATA_SHARE * _mean(series[worst].step_s)
    if not (steady or bursts) or mean - others < NOTICEABLE_S:
        return None
    start = onset([value for value in series[worst].own_data_s if not math.isnan(value)])
    since = f", since step {series[worst].steps[start]}" if start is not None else ""
    return Finding(
        "straggler.dataloader",
        "warning",
        f"Rank {worst} takes {mean:.3f} s a step to get its data, the others {others:.3f} s{since}: they wait for it.",
        "Look at the loader's workers, storage and CPU share of that rank; more workers or prefetching hide it.",
        0.9,
        ranks=(worst,),
        detail={"data_s": round(mean, 4), "others_s": round(others, 4)},
        evidence=[
            Evidence("progress", series[worst].where, f"data_s {mean:.3f} of step_s {_mean(series[worst].step_s):.3f}")
        ],
    )


def _by_work(evidence: EvidenceSet, fleet: Fleet) -> Finding | None:
    """The rank or host whose processes compute on while the others sleep, in a job that makes steps.

    It tells where waiting is sleep, as under gloo, and no call is recorded, as between the stages of a pipeline.
    """
    witnesses = evidence.once(witnesses_of)
    looks: defaultdict[int, list[float]] = defaultdict(list)
    for state in evidence.of(ProcessState):
        if state.rank is not None and state.cpu is not None:
            looks[state.rank].append(state.cpu)
    cores = {rank: sum(seen) / len(seen) for rank, seen in looks.items()}
    usual = median(sorted(cores.values())[: (len(cores) + 1) // 2] or [0.0])
    busy = tuple(sorted(r for r, used in cores.items() if used > max(WORK_RATIO * usual, usual + WORK_CORES)))
    hosts = fleet.hosts_of(busy)
    whole = len(hosts) == 1 and set(busy) == {rank for rank in cores if fleet.hosts.get(rank) == hosts[0]}
    if not witnesses.stepping or not busy or 2 * len(busy) > len(cores) or not (whole or len(busy) == 1):
        return None
    who = name_ranks(busy) if len(busy) == 1 else f"Host {hosts[0]} ({name_ranks(busy)})"
    used = sum(cores[rank] for rank in busy) / len(busy)
    return Finding(
        "straggler.node" if len(busy) > 1 else _code_of(witnesses.suspect(busy[0]).sub_cause, ""),
        "warning",
        f"{who} computes most of the time ({used:.0%} of a core a rank) while the others mostly sleep ({usual:.0%}): "
        "they wait for it.",
        "See what it computes: py-spy record on it; give it less work (other stages, other data), or a host as fast as "
        "the others.",
        0.6,
        ranks=busy,
        detail={"cores": {rank: round(used, 2) for rank, used in sorted(cores.items())}},
        evidence=[
            Evidence("process", f"rank {rank}", f"{cores[rank]:.0%} of a core over {len(looks[rank])} looks")
            for rank in sorted(cores, key=lambda rank: -cores[rank])[:4]
        ],
    )


def _known(values: Sequence[float]) -> list[float]:
    """Values that are known, the first step left out: it compiles and warms up."""
    return [value for value in values[1:] if not math.isnan(value)]


def _median(values: Sequence[float]) -> float | None:
    known = _known(values)
    return median(known) if len(known) >= MIN_STEPS else None


def _mean(values: Sequence[float]) -> float:
    known = _known(values)
    return sum(known) / len(known) if known else 0.0


RULES = (
    Rule(
        (
            "straggler.rank",
            "straggler.node",
            "straggler.dataloader",
            "straggler.checkpoint",
            "straggler.gc",
            "straggler.expert_imbalance",
            *CAUSES,
        ),
        ("straggler",),
        find_stragglers,
    ),
)

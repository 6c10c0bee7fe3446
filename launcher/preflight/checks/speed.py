"""What came of the small real workload: wrong results, slow devices, hosts and links that fail or crawl."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launcher.common.finding import Evidence, Finding
from launcher.hosts.names import fold
from launcher.preflight.facts import HostFacts
from launcher.preflight.pairs import Pair, blame

SLOW_DEVICE = {"cpu": 0.5, "cuda": 0.8}  # of the median of its peers; CPUs are shared with whoever else is there
SLOW_LINK = "preflight.slow_link"
SLOW_PAIR = 1 / 4  # of the bandwidth that a quarter of the pairs reach

Answer = Mapping[str, Any]  # what launcher/agent/exercise.py answered


def judge(answers: Mapping[str, Answer], facts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """Findings of what the hosts did alone and in pairs. Pure."""
    yield from _wrong(answers)
    yield from _slow_devices(answers, facts)
    for host, answer in answers.items():
        if "error" in answer["inside"]:
            yield Finding(
                "preflight.collective_failed",
                "error",
                f"A collective inside {host} failed: {answer['inside']['error']}",
                "run it by hand with NCCL_DEBUG=INFO; look at /dev/shm, NVLink and the Fabric Manager",
                hosts=[host],
            )
    yield from _failed_pairs(answers)
    yield from _slow_pairs(answers)


def judge_all(answers: Mapping[str, Answer]) -> Iterator[Finding]:
    """The collective of all hosts that passed in pairs."""
    failed = {host: answer["phases"][0]["error"] for host, answer in answers.items() if "error" in answer["phases"][0]}
    if failed:
        host, error = next(iter(failed.items()))
        yield Finding(
            "preflight.collective_failed",
            "error",
            f"Every pair works, but the collective of all {len(answers)} hosts failed on {fold(failed)}.",
            "look for limits that grow with the number of peers: open files, queue pairs, ARP tables",
            hosts=sorted(failed),
            evidence=[Evidence("collective", host, error)],
        )


def _wrong(answers: Mapping[str, Answer]) -> Iterator[Finding]:
    for host, answer in answers.items():
        wrong = [about["device"] for about in answer["products"] if not about["right"]]
        if wrong:
            yield Finding(
                "preflight.wrong_result",
                "error",
                f"A matrix product on {', '.join(wrong)} of {host} came out wrong: it corrupts data silently.",
                "take the host out and run dcgmi diag -r 3 (CPUs: a memory test)",
                hosts=[host],
            )


def _slow_devices(answers: Mapping[str, Answer], facts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """Devices beside the median of all of their model."""
    speeds: dict[tuple[str, Any], dict[tuple[str, str], float]] = {}
    for host, answer in answers.items():
        models = facts[host].models
        for place, about in enumerate(answer["products"]):
            model = models[place] if place < len(models) else None
            speeds.setdefault((about["device"].partition(":")[0], model), {})[host, about["device"]] = about["flops"]
    for (kind, _), by_device in speeds.items():
        middle = statistics.median(by_device.values())
        for (host, device), flops in by_device.items():
            if flops < SLOW_DEVICE[kind] * middle:
                yield Finding(
                    "preflight.slow_device",
                    "warning",
                    f"{device} of {host} multiplies at {flops / 1e12:.3g} Tflop/s; its peers at {middle / 1e12:.3g}.",
                    "look at clocks, temperature and power (nvidia-smi -q -d PERFORMANCE), and who else computes there",
                    hosts=[host],
                    detail={"device": device, "flops": flops, "median": middle},
                )


def _meetings(answers: Mapping[str, Answer]) -> Iterator[tuple[Pair, str, Answer]]:
    """(pair, host that tells it, what it tells) of all phases."""
    for host, answer in answers.items():
        for about in filter(None, answer["phases"]):
            yield frozenset(about["group"]), host, about


def better_of(first: Mapping[str, Answer], again: Mapping[str, Answer]) -> dict[str, Answer]:
    """Each meeting as it went better: what is slow once may have been disturbed. A failure stays one."""
    merged: dict[str, Answer] = {}
    for host, answer in first.items():
        repeated = again.get(host, answer)["phases"]
        merged[host] = {**answer, "phases": list(map(_faster, answer["phases"], repeated))}
    return merged


def _faster(one: Answer | None, other: Answer | None) -> Answer | None:
    if one and other and "seconds" in one and "seconds" in other:
        return min(one, other, key=lambda about: float(max(about["seconds"])))
    return one


def bandwidths(answers: Mapping[str, Answer]) -> dict[Pair, float]:
    """Pair -> bytes a second of its slowest device, where both hosts finished."""
    rates: dict[Pair, list[float]] = {}
    for pair, _, about in _meetings(answers):
        rates.setdefault(pair, []).append(about["bytes"] / max(about["seconds"]) if "seconds" in about else 0.0)
    return {pair: min(told) for pair, told in rates.items() if len(told) == len(pair) and min(told) > 0}


def _failed_pairs(answers: Mapping[str, Answer]) -> Iterator[Finding]:
    errors = {pair: (host, about["error"]) for pair, host, about in _meetings(answers) if "error" in about}
    culprits = blame((pair for pair, _, _ in _meetings(answers)), errors)
    for host in culprits.hosts:
        mine = [told for pair, told in errors.items() if host in pair]
        yield Finding(
            "preflight.collective_failed",
            "error",
            f"Collectives of {host} with each of {len(mine)} other hosts failed; these work with one another.",
            "run one by hand with NCCL_DEBUG=INFO; look at the NICs and the firewall of this host",
            hosts=[host],
            evidence=[Evidence("collective", told, error) for told, error in mine[:3]],
        )
    for pair in culprits.links:
        told, error = errors[pair]
        yield Finding(
            "preflight.collective_failed",
            "error",
            f"A collective between {' and '.join(sorted(pair))} failed; both work with others.",
            "look at the path between the two: cables, switch ports, routes",
            hosts=sorted(pair),
            evidence=[Evidence("collective", told, error)],
        )


def _slow_pairs(answers: Mapping[str, Answer]) -> Iterator[Finding]:
    rates = bandwidths(answers)
    if len(rates) < 2:
        return
    usual = sorted(rates.values())[round(0.75 * (len(rates) - 1))]
    slow = {pair: rate for pair, rate in rates.items() if rate < SLOW_PAIR * usual}
    culprits = blame(rates, slow)
    for host in culprits.hosts:
        own = statistics.median(rate for pair, rate in slow.items() if host in pair)
        yield _slow(f"{host} exchanges data with every other host", own, usual, [host], "cable and port of its NIC")
    for pair in culprits.links:
        names = sorted(pair)
        yield _slow(f"{' and '.join(names)} exchange data", slow[pair], usual, names, "path between the two")


def _slow(who: str, rate: float, usual: float, hosts: Sequence[str], where: str) -> Finding:
    return Finding(
        SLOW_LINK,
        "error",
        f"{who} at {rate / 1e9:.3g} GB/s; the other pairs reach {usual / 1e9:.3g}.",
        f"look at the {where}: negotiated speed, errors (ethtool -S), traffic shaping, a duplex mismatch",
        hosts=hosts,
        detail={"bytes_per_s": rate, "usual_bytes_per_s": usual},
    )

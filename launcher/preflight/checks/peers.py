"""What must be equal on all hosts: versions and the variables that steer the libraries; and how to tell who differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from launcher.common.finding import Evidence, Finding
from launcher.hosts.names import fold
from launcher.preflight.checks.collect import RECORDER_SIZES
from launcher.preflight.facts import HostFacts

V = TypeVar("V", bound=Hashable)

# What must be equal -> (code, severity, how it is put right).
MUST_AGREE: Mapping[str, tuple[str, str]] = {
    "torch": ("torch.version_mismatch", "install the same torch everywhere"),
    "nvidia-nccl-cu12": ("nccl.version_mismatch", "install the same torch and NCCL everywhere"),
    "nvidia-nccl-cu13": ("nccl.version_mismatch", "install the same torch and NCCL everywhere"),
    "python": ("preflight.version_mismatch", "use the same Python everywhere: `python` in the inventory"),
    "driver": ("preflight.version_mismatch", "install the same driver everywhere"),
    "cuda": ("preflight.version_mismatch", "install the same driver everywhere"),
}
TOLD_BY_OTHERS = ("torch", "driver", "cuda")  # that it is missing is another check's finding
# Variables that rightly differ where hosts name their NICs differently, and those that have a check of their own.
PASSED_OVER = ("SOCKET_IFNAME", "_HCA", *RECORDER_SIZES)


def usual(values: Iterable[V]) -> V:
    """The most frequent value; of equally frequent ones the first."""
    return Counter(values).most_common(1)[0][0]


def outliers(values: Mapping[str, V]) -> tuple[V, dict[str, V]]:
    """The usual value, and host -> value of those that differ from it."""
    common = usual(values.values())
    return common, {host: value for host, value in values.items() if value != common}


def alike(hosts: Sequence[HostFacts]) -> list[list[HostFacts]]:
    """The hosts in groups of the same device model: only these can be compared. A lost device does not part them."""
    groups: dict[str | None, list[HostFacts]] = {}
    for facts in hosts:
        groups.setdefault(usual(facts.models) if facts.models else None, []).append(facts)
    bare = groups.pop(None, [])
    if bare and len(groups) == 1:  # a host that lost all its devices is one of them
        next(iter(groups.values())).extend(bare)
        return list(groups.values())
    return [*groups.values(), *([bare] if bare else [])]


def versions(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """One finding for each version that some hosts have otherwise, or lack."""
    for name, (code, fix) in MUST_AGREE.items():
        asked = [facts for facts in hosts if name in facts.versions or name not in TOLD_BY_OTHERS]
        have = {facts.host: facts.versions.get(name, "none") for facts in asked}
        if not have:
            continue
        common, differing = outliers(have)
        for value in sorted(set(differing.values())):
            who = [host for host in differing if differing[host] == value]
            yield Finding(
                code,
                "error" if code != "preflight.version_mismatch" else "warning",
                f"{fold(who)} has {name} {value}, the other hosts have {common}.",
                fix,
                hosts=who,
                detail={"what": name, "value": value, "usual": common},
                evidence=[Evidence("versions", host, f"{name} {value}") for host in who[:4]],
            )


def torch_present(facts: HostFacts) -> Iterator[Finding]:
    """Without torch no rank starts; known from the metadata of its packages."""
    if "torch" not in facts.versions:
        yield Finding(
            "preflight.no_torch",
            "error",
            f"{facts.host} has no torch under Python {facts.versions['python']}.",
            "set `python` of the cluster in the inventory to the environment that has torch",
            hosts=[facts.host],
        )


def environment(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """One finding for each NCCL, torch, gloo, libfabric or UCX variable that differs between hosts."""
    names = sorted({name for facts in hosts for name in facts.environment if not name.endswith(PASSED_OVER)})
    for name in names:
        common, differing = outliers({facts.host: facts.environment.get(name) for facts in hosts})
        if differing:
            shown = ", ".join(f"{host} {value or 'not set'}" for host, value in list(differing.items())[:4])
            yield Finding(
                "env.mismatch",
                "warning",
                f"{name} is {common or 'not set'} on most hosts, but: {shown}.",
                f"set {name} alike on all hosts, in `env` of the inventory",
                hosts=list(differing),
                detail={"variable": name, "usual": common},
            )

"""Room and limits: /dev/shm, open files, locked memory, disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.common.finding import Finding, unknown
from launcher.preflight.checks.peers import outliers
from launcher.preflight.facts import UNLIMITED, HostFacts

MIB = 1 << 20
SHM_PER_RANK = 128 * MIB  # NCCL's segments and a data loader's queues; Docker's default is 64 MiB in all
SHM_LEAST = 256 * MIB
FILES_LEAST = 1024  # the usual default; below it ranks with data loaders run into it
DISK_LEAST = 1024 * MIB  # logs, dumps and one small checkpoint
NAMES = {
    "open_files": ("init.file_descriptors", "open files", "nofile"),
    "memlock": ("init.memlock", "locked memory", "memlock"),
}


def shared_memory(facts: HostFacts) -> Iterator[Finding]:
    """NCCL, gloo and data loaders exchange data through /dev/shm."""
    needed = max(SHM_LEAST, SHM_PER_RANK * facts.ranks)
    if facts.shm is None:
        yield unknown(f"the size of /dev/shm of {facts.host}", hosts=[facts.host])
    elif facts.shm["free"] < needed:
        yield Finding(
            "init.shm_full",
            "error",
            f"/dev/shm of {facts.host} has {facts.shm['free'] // MIB} MiB free of {facts.shm['total'] // MIB} MiB; "
            f"{facts.ranks} ranks need about {needed // MIB} MiB.",
            "mount -o remount,size=16g /dev/shm (containers: --shm-size or --ipc=host), and remove what is left in it",
            hosts=[facts.host],
            detail={**facts.shm, "needed": needed},
        )


def open_files(facts: HostFacts) -> Iterator[Finding]:
    """Each rank holds sockets to its peers and its data loader's files."""
    soft, _ = facts.limits["open_files"]
    if soft != UNLIMITED and soft < FILES_LEAST:
        yield _too_low(facts, "open_files", f"at least {FILES_LEAST}")


def locked_memory(facts: HostFacts) -> Iterator[Finding]:
    """RDMA pins its buffers; a limit makes it fail in the middle of a job's start."""
    soft, _ = facts.limits["memlock"]
    if soft != UNLIMITED and facts.rdma:
        yield _too_low(facts, "memlock", "unlimited, since RDMA pins its buffers")


def lower_than_peers(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """A limit that no rule forbids, but that the host's peers do not have."""
    for name in NAMES:
        common, differing = outliers({facts.host: facts.limits[name][0] for facts in hosts})
        for facts in hosts:
            alone = {finding.code for check in (open_files, locked_memory) for finding in check(facts)}
            lower = facts.host in differing and differing[facts.host] != UNLIMITED
            if lower and (common == UNLIMITED or differing[facts.host] < common) and NAMES[name][0] not in alone:
                yield _too_low(facts, name, f"{_spelt(common)} as on the other hosts")


def disk(facts: HostFacts) -> Iterator[Finding]:
    """Where the jobs' logs and dumps go."""
    if facts.disk_free < DISK_LEAST or facts.not_writable:
        words = facts.not_writable or f"{facts.directory} has {facts.disk_free // MIB} MiB free"
        yield Finding(
            "host.disk_full" if facts.disk_free < DISK_LEAST else "preflight.not_writable",
            "error",
            f"{facts.host} cannot hold a job's files: {words}.",
            "make room, or set `directory` of the cluster to a larger file system that you may write to",
            hosts=[facts.host],
            detail={"free": facts.disk_free, "directory": facts.directory},
        )


def _too_low(facts: HostFacts, name: str, wanted: str) -> Finding:
    code, words, item = NAMES[name]
    soft, hard = facts.limits[name]
    return Finding(
        code,
        "warning" if code == "init.file_descriptors" else "error",
        f"The limit of {words} on {facts.host} is {_spelt(soft)} (hard {_spelt(hard)}); it should be {wanted}.",
        f"raise {item} in /etc/security/limits.conf and for the service that starts sessions (sshd, slurmd)",
        hosts=[facts.host],
        detail={"limit": name, "soft": soft, "hard": hard},
    )


def _spelt(limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else str(limit)

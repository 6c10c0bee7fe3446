"""Collectability: whether a job that hangs here could be explained afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.common.finding import Finding
from launcher.hosts.names import fold
from launcher.preflight.facts import HostFacts

RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
NOBODY_MAY_ATTACH = 3
ONLY_ROOT_MAY_ATTACH = 2


def flight_recorder(facts: HostFacts) -> Iterator[Finding]:
    """`dlaunch run` turns the recorder on, unless a variable of the host or the inventory turns it off."""
    off = [name for name in RECORDER_SIZES if facts.environment.get(name, "1").strip() == "0"]
    if off:
        yield Finding(
            "preflight.recorder_off",
            "warning",
            f"{off[0]}=0 on {facts.host}: no flight recorder, so a hang there could not be explained.",
            f"unset {off[0]}; dlaunch run sets 2000",
            hosts=[facts.host],
        )


def tracing(facts: HostFacts) -> Iterator[Finding]:
    """ptrace_scope 1 is no obstacle: the rank shim lets our agent attach."""
    scope = facts.ptrace_scope or 0
    if scope >= NOBODY_MAY_ATTACH or (scope == ONLY_ROOT_MAY_ATTACH and not facts.may_trace_others):
        yield Finding(
            "preflight.ptrace",
            "warning",
            f"kernel.yama.ptrace_scope is {scope} on {facts.host}: py-spy cannot read the stacks of hanging ranks.",
            "sysctl kernel.yama.ptrace_scope=1",
            hosts=[facts.host],
        )


def py_spy(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """Where all hosts lack it the ranks' own hook writes Python stacks; where a few do, an environment is not whole."""
    lack = [facts.host for facts in hosts if not facts.py_spy]
    if lack:
        yield Finding(
            "preflight.no_py_spy",
            "warning" if len(lack) < len(hosts) else "info",
            f"py-spy is missing on {fold(lack)}: native stacks of hanging ranks cannot be read there.",
            "python -m pip install py-spy, under the Python of the inventory",
            hosts=lack,
        )

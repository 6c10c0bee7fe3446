"""Every code that a finding may bear: what it means and what to do, in general words. Pure data.

A finding itself says the same with its ranks, hosts and operations. A code once shipped keeps its meaning.
`docs/verdicts.md` is made from this table (`make docs`), and a test holds it equal to the codes in the sources.
"""

from __future__ import annotations

from collections.abc import Mapping

from launcher.common.codes import hardware, running, waiting
from launcher.common.codes.code import Code

__all__ = ["CODES", "FAMILIES", "Code"]

FAMILIES: Mapping[str, str] = {
    "hang": "the ranks wait for each other",
    "bootstrap": "the ranks do not find each other",
    "init": "a communicator is not set up",
    "net": "the network between hosts",
    "gpu": "a device",
    "host": "a host",
    "nccl": "the library",
    "torch": "the library",
    "env": "variables",
    "slow": "all ranks are slow alike",
    "straggler": "one is slower than the others",
    "numeric": "the numbers",
    "data": "the data",
    "rng": "random numbers",
    "mesh": "ranks, devices and groups",
    "cascade": "victims: the cause is elsewhere",
    "benign": "looks bad and is not",
    "preflight": "found before a job",
    "doctor": "the doctor itself",
    "plugin": "what is installed beside dlaunch",
}

CODES: Mapping[str, Code] = {**waiting.CODES, **hardware.CODES, **running.CODES}

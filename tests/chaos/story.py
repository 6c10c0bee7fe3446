"""What happens in a round: jobs, and what befalls them when. Pure: the same seed and number give the same story."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

What = Literal["terminal", "hangup", "supervisor", "agent", "rank", "freeze", "stop", "cut", "crash"]
SiteName = Literal["local", "ssh"]
HARMLESS: frozenset[What] = frozenset({"terminal", "hangup", "supervisor", "freeze"})  # must not fail a job
FOR_SITE: dict[SiteName, Sequence[What]] = {
    "local": ("terminal", "hangup", "supervisor", "supervisor", "agent", "rank", "rank", "freeze", "stop"),
    "ssh": ("terminal", "supervisor", "supervisor", "agent", "rank", "rank", "freeze", "stop", "cut", "cut", "crash"),
}


@dataclass(frozen=True)
class Blow:
    """`after` seconds since the job was written down (`early`) or since it ran, hit its `node` or `rank`."""

    what: What
    early: bool
    after: float
    node: int
    rank: int


@dataclass(frozen=True)
class Act:
    """One job: its shape, and what befalls it."""

    name: str
    nodes: int
    nproc: int
    steps: int
    restarts: int
    torchrun: bool
    fails: tuple[int, int] | None  # rank and step
    blows: Sequence[Blow]

    @property
    def arguments(self) -> list[str]:
        return [str(number) for number in (self.steps, *(self.fails or ()))]

    @property
    def options(self) -> list[str]:
        shape = ["--nodes", str(self.nodes), "--nproc-per-node", str(self.nproc), "--max-restarts", str(self.restarts)]
        return [*shape, "--name", self.name, *([] if self.torchrun else ["--no-torchrun"])]

    def suffers(self, *kinds: What) -> bool:
        return any(blow.what in kinds for blow in self.blows)


def story(seed: int, number: int, site: SiteName, hosts: int, jobs: int = 3) -> list[Act]:
    """The acts of one round."""
    rng = random.Random(f"{seed}/{number}/{site}")
    return [_act(rng, f"c{number}-{index}", site, hosts) for index in range(jobs)]


def _act(rng: random.Random, name: str, site: SiteName, hosts: int) -> Act:
    nodes, nproc = rng.randint(1, hosts), rng.randint(1, 2)
    steps = rng.choice((20, 60, 120))
    fails = (rng.randrange(nodes * nproc), rng.randint(1, steps)) if rng.random() < 0.2 else None
    blows = [_blow(rng, site, nodes, nproc) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return Act(name, nodes, nproc, steps, rng.choice((0, 0, 1, 2)), rng.random() < 0.15, fails, blows)


def _blow(rng: random.Random, site: SiteName, nodes: int, nproc: int) -> Blow:
    early = rng.random() < 0.3
    return Blow(
        rng.choice(FOR_SITE[site]), early, rng.uniform(0, 2.5), rng.randrange(nodes), rng.randrange(nodes * nproc)
    )

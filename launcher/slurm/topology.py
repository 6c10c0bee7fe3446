"""Slurm's switches and blocks, and the order of nodes that follows from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from launcher.hosts.names import expand, natural
from launcher.slurm.text import pairs


@dataclass(frozen=True)
class Switch:
    """`level` counts from 0 at the leaves; `nodes` are all below it where Slurm says so, else its own."""

    level: int
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True)
class SlurmTopology:
    """A tree of switches, or blocks with their nodes; both may be empty."""

    switches: Mapping[str, Switch] = field(default_factory=dict)
    blocks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    block_sizes: tuple[int, ...] = ()

    @property
    def leaves(self) -> dict[str, tuple[str, ...]]:
        """The innermost groups of nodes: blocks, or switches without switches below."""
        tree = {name: switch.nodes for name, switch in self.switches.items() if not switch.children}
        return {**tree, **self.blocks}


def parse_topology(text: str) -> SlurmTopology:
    """Read `scontrol show topology`, topology.conf or topology.yaml (its default one), of a tree or of blocks."""
    plain = re.sub(r"\\\s*\n|(?:^|(?<=\s))#.*", " ", text, flags=re.MULTILINE)  # goes on in the next line; a remark
    lines = _yaml_lines(text) or [{key.lower(): value for key, value in pairs(line)} for line in plain.splitlines()]
    switches = {line["switchname"]: line for line in lines if "switchname" in line}
    children = {name: tuple(expand(line.get("switches", ""))) for name, line in switches.items()}
    return SlurmTopology(
        switches={
            name: Switch(
                int(line["level"]) if re.fullmatch(r"\d{1,9}", line.get("level", "")) else _level(name, children),
                tuple(expand(line.get("nodes", ""))),
                children[name],
            )
            for name, line in switches.items()
        },
        blocks={line["blockname"]: tuple(expand(line.get("nodes", ""))) for line in lines if "blockname" in line},
        block_sizes=tuple(
            int(size) for line in lines for size in re.findall(r"\d+", line.get("blocksizes", "").replace(",", " "))
        ),
    )


def _yaml_lines(text: str) -> list[dict[str, str]]:
    """The entries of a topology.yaml (25.05 and later) under the keys of topology.conf; none for any other text."""
    if not re.search(r"^- topology:", text, re.MULTILINE):
        return []
    import yaml

    topologies = yaml.safe_load(text)
    chosen = next((entry for entry in topologies if entry.get("cluster_default")), topologies[0])
    names = {"switch": "switchname", "children": "switches", "block": "blockname", "nodes": "nodes"}
    tree, block = chosen.get("tree") or {}, chosen.get("block") or {}
    entries = [*(tree.get("switches") or ()), *(block.get("blocks") or ())]
    lines = [{names[key]: str(value) for key, value in entry.items() if key in names} for entry in entries]
    return [*lines, {"blocksizes": " ".join(map(str, block.get("block_sizes") or ()))}]


def _level(name: str, children: Mapping[str, tuple[str, ...]], seen: frozenset[str] = frozenset()) -> int:
    below = [child for child in children.get(name, ()) if child not in seen]
    return 1 + max(_level(child, children, seen | {name}) for child in below) if below else 0


def node_order(addresses: Mapping[str, str]) -> list[str]:
    """Nodes in the order of their places in the network: node -> `SLURM_TOPOLOGY_ADDR`, e.g. `spine.leaf2.n10`.

    Nodes of one switch stay together, and numbers count as numbers (`n2` before `n10`), which the alphabet does not do.
    Without a topology plugin the address is the node's name alone.
    """
    return sorted(addresses, key=lambda node: [natural(part) for part in (addresses[node] or node).split(".")])

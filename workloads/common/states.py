"""The one table: five kinds of state, replicated or sharded along each mesh axis, and what that costs in traffic.

Formulas are text over the names of `costs.Case.names`, so that the documentation prints what the planner computes and
the tests count. Importable without torch. Units: bytes, calls and elements per rank and optimizer step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")  # outermost first, the order of torchtitan
State = Literal["data", "parameters", "gradients", "optimizer", "activations"]
STATES: tuple[State, ...] = ("data", "parameters", "gradients", "optimizer", "activations")
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"]


@dataclass(frozen=True)
class Exchange:
    """One kind of communication in a step: `calls` of it carry `bytes` in sum (the whole tensors, before any ring)."""

    collective: Collective
    state: State
    moment: str
    calls: str
    bytes: str
    over: str = ""  # mesh axis whose group carries it, where that is not the row's own


@dataclass(frozen=True)
class Row:
    """One way to use one mesh axis: what it shards (all else is replicated along it) and what it sends when."""

    axis: str
    shards: tuple[State, ...]
    exchanges: tuple[Exchange, ...]

    def placement(self, state: State) -> str:
        return "sharded" if state in self.shards else "replicated"


_STATIC: tuple[State, ...] = ("parameters", "gradients", "optimizer")
_GATHER_FORWARD = Exchange(
    "all_gather", "parameters", "before each block's forward", "G * (L + root)", "G * (L * P_block + P_root) * compute"
)
_GATHER_BACKWARD = Exchange(
    "all_gather", "parameters", "before each block's backward", "M * L", "M * L * P_block * compute"
)
_SCATTER = Exchange(
    "reduce_scatter", "gradients", "after each block's last backward", "L + root", "(L * P_block + P_root) * 4"
)
_ALL_REDUCE = Exchange("all_reduce", "gradients", "during the last backward, by bucket", "buckets", "P * 4")

_VOCABULARY = Exchange(
    "all_reduce",
    "activations",
    "of the loss: largest, sum, target's logit",
    "3 * M * predicts",
    "3 * M * predicts * T * 4",
)


def _products(root: str) -> tuple[str, str]:
    """Calls and bytes of one activation for each pair of products in a layer (1 beside experts), and for the root's."""
    return f"M * (pairs * L + {root})", f"M * (pairs * L + {root}) * A"


ROWS: dict[str, Row] = {
    "ddp": Row("dp_replicate", ("data", "activations"), (_ALL_REDUCE,)),
    "zero1": Row(
        "dp_shard",
        ("data", "activations", "optimizer"),
        (_ALL_REDUCE, Exchange("broadcast", "parameters", "after the optimizer step, by owner", "n", "P * 4")),
    ),
    "zero2": Row("dp_shard", ("data", "activations", *_STATIC), (_GATHER_FORWARD, _SCATTER)),
    "zero3": Row("dp_shard", ("data", "activations", *_STATIC), (_GATHER_FORWARD, _GATHER_BACKWARD, _SCATTER)),
    "hsdp": Row(
        "dp_replicate",
        ("data", "activations"),
        (
            Exchange(
                "all_reduce",
                "gradients",
                "after each block's reduce-scatter",
                "L + root",
                "(L * P_block + P_root) * 4 / fsdp",
            ),
        ),
    ),
    "tp": Row(
        "tp",
        _STATIC,
        (
            Exchange("all_reduce", "activations", "forward, after each row-parallel product", *_products("embeds")),
            Exchange(
                "all_reduce", "gradients", "backward, before each column-parallel product", *_products("predicts")
            ),
            _VOCABULARY,
        ),
    ),
    "tp_sequence": Row(
        "tp",
        ("activations", *_STATIC),
        (
            Exchange(
                "all_gather", "activations", "forward, before each column-parallel product", *_products("predicts")
            ),
            Exchange("reduce_scatter", "activations", "forward, after each row-parallel product", *_products("embeds")),
            Exchange("all_gather", "gradients", "backward of the reduce-scatters", *_products("embeds")),
            Exchange("reduce_scatter", "gradients", "backward of the all-gathers", *_products("predicts")),
            Exchange(
                "all_reduce", "gradients", "of norms and routers, whose ranks saw other tokens", "uncut", "P_uncut * 4"
            ),
            _VOCABULARY,
        ),
    ),
    "pp": Row(
        "pp",
        ("activations", *_STATIC),
        (
            Exchange(
                "send", "activations", "after a stage's forward, but for the last", "M * after", "M * after * A_rank"
            ),
            Exchange(
                "send", "gradients", "after a stage's backward, but for the first", "M * before", "M * before * A_rank"
            ),
        ),
    ),
    "cp_ring": Row(
        "cp",
        ("data", "activations"),
        (
            Exchange(
                "send",
                "activations",
                "forward, keys and values each hop",
                "M * L * (n - 1)",
                "M * L * (n - 1) * KV * compute",
            ),
            Exchange(
                "send",
                "activations",
                "backward, keys and values each hop",
                "M * L * (n - 1)",
                "M * L * (n - 1) * KV * compute",
            ),
            Exchange(
                "send", "gradients", "backward, their gradients one hop behind", "M * L * n", "M * L * n * KV * 4"
            ),
        ),
    ),
    "cp_allgather": Row(
        "cp",
        ("data", "activations"),
        (
            Exchange("all_gather", "activations", "forward, all keys and values", "M * L", "M * L * n * KV * compute"),
            Exchange(
                "all_gather", "activations", "backward, all keys and values again", "M * L", "M * L * n * KV * compute"
            ),
            Exchange("reduce_scatter", "gradients", "backward, of keys and values", "M * L", "M * L * n * KV * 4"),
        ),
    ),
    "cp_ulysses": Row(
        "cp",
        ("data", "activations"),
        (
            Exchange(
                "all_to_all",
                "activations",
                "forward: q, k, v there, output back",
                "4 * M * L",
                "M * L * (2 * Q + KV) * compute",
            ),
            Exchange("all_to_all", "gradients", "backward, the reverse", "4 * M * L", "M * L * (2 * Q + KV) * compute"),
        ),
    ),
    "ep": Row(  # bytes of tokens are those of an even load
        "ep",
        _STATIC,
        (
            Exchange("all_to_all", "data", "forward: how many tokens for whom", "M * L", "M * L * E * 8"),
            Exchange(
                "all_to_all", "activations", "forward: tokens there and back", "2 * M * L", "2 * M * L * k * A_rank"
            ),
            Exchange("all_to_all", "gradients", "backward, the reverse", "2 * M * L", "2 * M * L * k * A_rank"),
            Exchange(
                "all_gather",
                "parameters",
                "before each mixture's two passes",
                "2 * M * L",
                "2 * M * L * E_block * compute",
                "ep_shard",
            ),
            Exchange("reduce_scatter", "gradients", "after its last backward", "L", "L * E_block * 4", "ep_shard"),
            Exchange(
                "all_reduce",
                "gradients",
                "of experts' shards, between replicas",
                "L",
                "L * E_block * 4 / ep_shard",
                "dp_replicate",
            ),
            Exchange(
                "all_reduce", "data", "forward: the experts' load, for balance", "M * L", "M * L * E * 4", "tokens"
            ),
            Exchange("all_reduce", "data", "after backward: load and drops", "1", "L * (E + 1) * 4", "tokens"),
        ),
    ),
}


@dataclass(frozen=True)
class Profile:
    """Bytes that one parameter takes in each state; `gathered` is the width of a parameter while it is whole."""

    parameters: int
    gradients: int
    optimizer: int
    gathered: int


PROFILES = {
    "classic": Profile(2, 2, 12, 2),  # bf16 weights and gradients; fp32 master copy and two moments in the optimizer
    "fsdp2": Profile(4, 4, 8, 2),  # as FSDP2 really allocates: fp32 shard and gradient, Adam's two, bf16 when gathered
    "float32": Profile(4, 4, 8, 4),
}

WORKLOADS: dict[str, tuple[str, ...]] = {
    "ddp": ("ddp",),
    "zero": ("zero2",),  # with --stage 1 and 3: zero1, zero3
    "fsdp": ("zero3",),
    "hsdp": ("hsdp", "zero3"),
    "tp": ("tp_sequence", "zero3"),
    "pp": ("pp", "zero2"),
    "cp": ("cp_ring", "zero3"),
    "ep": ("ep", "zero3"),
    "nd": ("pp", "hsdp", "zero3", "cp_ring", "tp_sequence", "ep"),
}

_SHARDED = {"dp_shard": "all"}
_BY_NODE = {"dp_replicate": "nodes", "dp_shard": "node"}
DEFAULT_MESH: dict[str, dict[str, str]] = {  # workload -> axis -> what it spans where no mesh is given
    "ddp": {"dp_replicate": "all"},
    "zero": _SHARDED,
    "fsdp": _SHARDED,
    "hsdp": _BY_NODE,
    "tp": {"dp_shard": "nodes", "tp": "node"},
    "pp": {"pp": "all"},
    "cp": {"cp": "all"},  # all ranks on one sequence
    "ep": {**_SHARDED, "ep": "node"},
    "nd": _BY_NODE,
}


def default_degrees(workload: str, nodes: int, per_node: int) -> dict[str, int]:
    """The mesh of a workload that is given none; raises KeyError for a name that is no workload's."""
    sizes = {"all": nodes * per_node, "nodes": nodes, "node": per_node}
    return {axis: sizes[span] for axis, span in DEFAULT_MESH[workload].items()}


def rows_for(degrees: Mapping[str, int]) -> tuple[str, ...]:
    """The rows that nd.py uses on a mesh: FSDP or HSDP where there is anything to shard, else DDP."""
    wide = {axis for axis, degree in degrees.items() if degree > 1}
    sharded = bool(wide & {"dp_shard", "cp"})
    chosen = {
        "pp": "pp" in wide,
        "ddp": "dp_replicate" in wide and not sharded,
        "hsdp": "dp_replicate" in wide and sharded,
        "zero2": sharded and "pp" in wide,
        "zero3": sharded and "pp" not in wide,
        "cp_ring": "cp" in wide,
        "tp_sequence": "tp" in wide,
        "ep": "ep" in wide,
    }
    return tuple(name for name, used in chosen.items() if used)

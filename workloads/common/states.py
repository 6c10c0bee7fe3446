"""The one table: five kinds of state, replicated or sharded along each mesh axis, and what that costs in traffic.

Formulas are text over the names of `Case.names`, so that the documentation prints what the planner computes and the
tests count. Importable without torch. Units: bytes, calls and elements per rank and optimizer step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Literal

from workloads.common.config import ModelConfig

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
    """Calls and bytes of one activation for each of a layer's two pairs of products, and for the root's."""
    return f"M * (2 * L + {root})", f"M * (2 * L + {root}) * A"


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
            Exchange("all_reduce", "gradients", "of norms, whose ranks saw different tokens", "norms", "P_norms * 4"),
            _VOCABULARY,
        ),
    ),
    "pp": Row(
        "pp",
        ("activations", *_STATIC),
        (
            Exchange("send", "activations", "after a stage's forward, but for the last", "M * after", "M * after * A"),
            Exchange(
                "send", "gradients", "after a stage's backward, but for the first", "M * before", "M * before * A"
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
            Exchange("all_to_all", "activations", "forward: tokens there and back", "2 * M * L", "2 * M * L * k * A"),
            Exchange("all_to_all", "gradients", "backward, the reverse", "2 * M * L", "2 * M * L * k * A"),
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


@dataclass(frozen=True)
class Sizes:
    """How many parameters a model has where, and its widths. Counts may be fractional for a hypothetical model."""

    layers: int
    dim: int
    block: float  # matrices of one block, without experts
    block_norms: float = 0.0
    expert: float = 0.0  # one expert of one block
    experts: int = 0
    top_k: int = 0
    embedding: float = 0.0
    output: float = 0.0  # 0 where the embedding serves
    root_norms: float = 0.0
    kv_width: int = 0  # kv_heads · head_dim

    @property
    def total(self) -> float:
        root = self.embedding + self.output + self.root_norms
        return self.layers * (self.block + self.block_norms + self.experts * self.expert) + root

    @property
    def active(self) -> float:
        """Parameters that one token meets: of all experts only `top_k`."""
        return self.total - self.layers * (self.experts - self.top_k) * self.expert

    @classmethod
    def of(cls, config: ModelConfig) -> Sizes:
        """Exact counts of the model that `config` describes."""
        kv_width = config.kv_heads * config.head_dim
        attention = 2 * config.dim * config.dim + 2 * config.dim * kv_width
        mlp = 3 * config.dim * config.hidden
        return cls(
            config.layers,
            config.dim,
            block=attention + (config.dim * config.experts if config.experts else mlp),  # with experts, their router
            block_norms=2 * config.dim,
            expert=mlp if config.experts else 0,
            experts=config.experts,
            top_k=config.top_k if config.experts else 0,
            embedding=config.vocab * config.dim,
            output=0 if config.tied else config.vocab * config.dim,
            root_norms=config.dim,
            kv_width=kv_width,
        )

    @classmethod
    def dense(cls, parameters: float, layers: int, dim: int) -> Sizes:
        """A model of which only the number of parameters, depth and width are known: all of it in blocks."""
        return cls(layers, dim, block=parameters / layers, kv_width=dim)


@dataclass(frozen=True)
class Traffic:
    """One evaluated exchange: `calls` per step and rank carry `bytes` of whole tensors over groups of `members`."""

    axis: str
    exchange: Exchange
    calls: float
    bytes: float
    members: int

    @property
    def logical(self) -> float:
        """Bytes without the ring's (n − 1)/n; an all-reduce counts twice, as its reduce-scatter and all-gather."""
        return self.bytes * (2 if self.exchange.collective == "all_reduce" else 1)

    @property
    def sent(self) -> float:
        """Bytes that each rank sends on a ring."""
        whole = self.exchange.collective in ("send", "broadcast")
        return self.logical * (1.0 if whole else (self.members - 1) / self.members)


@dataclass(frozen=True)
class Case:
    """One model on one mesh under chosen rows. `batch` is the global number of sequences of `seq` tokens."""

    sizes: Sizes
    degrees: Mapping[str, int]
    rows: tuple[str, ...]
    batch: int
    seq: int
    profile: Profile = PROFILES["fsdp2"]
    micro_batches: int = 1
    virtual_stages: int = 1
    buckets: int = 1
    checkpointing: bool = False
    stage: int | None = None  # this rank's place along pp, with stages s, s + K, …; None takes the one that has most

    def degree(self, *axes: str) -> int:
        return math.prod(self.degrees.get(axis, 1) for axis in axes)

    @property
    def members(self) -> dict[str, int]:
        """Group size of each axis, as the collectives see it: FSDP gathers over dp_shard × cp at once."""
        groups = {axis: self.degree(axis) for axis in ("pp", "dp_replicate", "cp", "tp", "ep")}
        shards = self.degree("dp_shard", "cp")
        return {
            **groups,
            "dp_shard": shards,
            "ep_shard": shards * self.degree("tp") // self.degree("ep"),
            "tokens": shards * self.degree("dp_replicate"),
        }

    def _ends(self) -> tuple[bool, bool]:
        """Whether this rank has the model's first stage, and its last one (the heavier of the two)."""
        last = self.degree("pp") - 1
        stage = last if self.stage is None else self.stage
        return stage == 0, stage == last

    @property
    def names(self) -> dict[str, float]:
        """What the formulas may use; sizes are those of one rank of a tensor, expert and pipeline group."""
        sizes, tp, width = self.sizes, self.degree("tp"), self.profile.gathered
        stages, micro = self.degree("pp"), self.micro_batches
        embeds, predicts = self._ends()
        tokens = self.batch * self.seq / self.degree("dp_replicate", "dp_shard", "cp") / micro
        layers = sizes.layers / stages
        block = sizes.block / tp + sizes.block_norms
        root = (embeds * sizes.embedding + predicts * sizes.output) / tp + predicts * sizes.root_norms
        middle = self.stage is None and stages > 2  # sends both ways, as neither end does
        return {
            "M": micro,
            "G": 1 if stages > 1 else micro,  # a stage keeps its parameters whole for all micro-batches of a step
            "L": layers,
            "root": bool(root),
            "embeds": embeds and sizes.embedding > 0,
            "predicts": predicts and sizes.output > 0,
            "after": self.virtual_stages - (predicts and not middle),
            "before": self.virtual_stages - (embeds and not middle),
            "buckets": self.buckets,
            "P_block": block,
            "P_root": root,
            "P": layers * block + root,
            "E_block": sizes.experts * sizes.expert / self.degree("ep"),
            "norms": layers * (2 if sizes.block_norms else 0) + (predicts and sizes.root_norms > 0),
            "P_norms": layers * sizes.block_norms + predicts * sizes.root_norms,
            "T": tokens,
            "A": tokens * sizes.dim * width,
            "Q": tokens * sizes.dim,
            "KV": 2 * tokens * sizes.kv_width,
            "E": sizes.experts,
            "k": sizes.top_k,
            "compute": width,
            "fsdp": self.degree("dp_shard", "cp"),
        }

    def traffic(self) -> list[Traffic]:
        """Every exchange of the rows whose group has more than one member."""
        names, members = self.names, self.members
        found: list[Traffic] = []
        for row in (ROWS[name] for name in self.rows):
            for exchange in row.exchanges:
                axis = exchange.over or row.axis
                if members[axis] > 1:
                    values = {**names, "n": members[axis]}
                    calls, volume = _value(exchange.calls, values), _value(exchange.bytes, values)
                    found.append(Traffic(axis, exchange, calls, volume, members[axis]))
        return found

    def _local(self, state: State) -> float:
        """Elements of a state of the parameters that this rank keeps between steps."""
        names, members = self.names, self.members
        sharded = any(state in ROWS[name].shards for name in self.rows if ROWS[name].axis == "dp_shard")
        return names["P"] / (members["dp_shard"] if sharded else 1) + names["L"] * names["E_block"] / (
            members["ep_shard"] if sharded else 1
        )

    def memory(self) -> dict[str, float]:
        """Bytes per rank: parameters, gradients, optimizer, gathered (parameters while whole), activations, total."""
        kept: dict[str, float] = {
            "parameters": self._local("parameters") * self.profile.parameters,
            "gradients": self._local("gradients") * self.profile.gradients,
            "optimizer": self._local("optimizer") * self.profile.optimizer,
            "gathered": self._gathered() * self.profile.gathered,
            "activations": self._activations(),
        }
        return {**kept, "total": sum(kept.values())}

    def _gathered(self) -> float:
        """Elements whole at once: all under ZeRO-2, else the root, the block at work and the one that is prefetched."""
        names = self.names
        if "zero2" in self.rows:
            return names["P"]
        if "zero3" not in self.rows or self.members["dp_shard"] == 1:
            return 0.0
        return names["P_root"] + min(2, names["L"]) * (names["P_block"] + names["E_block"])

    def _activations(self) -> float:
        """34·tokens·dim bytes a layer at 2 bytes an element without a score matrix (Korthikanti et al. 2022, eq. 2, 4).

        Tensor parallelism divides 24 of the 34, with sequence parallelism all. Checkpointing keeps 2 a layer and one
        layer whole. A pipeline of K stages holds at most K micro-batches (1F1B).
        """
        names, tp = self.names, self.degree("tp")
        tensor = names["A"] / 2  # A counts `compute` bytes an element, the 34 counts two
        whole = tensor * (34 / tp if "tp_sequence" in self.rows else 10 + 24 / tp)
        held = min(self.micro_batches, self.degree("pp"))
        if self.checkpointing:
            return held * names["L"] * 2 * tensor + whole
        return held * names["L"] * whole


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


@cache
def _compiled(formula: str) -> CodeType:
    return compile(formula, "workloads.common.states", "eval")


def _value(formula: str, names: Mapping[str, float]) -> float:
    """Evaluate one of this file's own formulas, which may use nothing but `names`."""
    return float(eval(_compiled(formula), {"__builtins__": {}}, dict(names)))

"""The table of states evaluated for one model on one mesh: traffic and memory. Importable without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from types import CodeType

from workloads.common.config import ModelConfig
from workloads.common.states import PROFILES, ROWS, Exchange, Profile, State


@dataclass(frozen=True)
class Sizes:
    """How many parameters a model has where, and its widths. Counts may be fractional for a hypothetical model."""

    layers: int
    dim: int
    block: float  # matrices of one block, without experts and their router
    block_norms: float = 0.0
    router: float = 0.0
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
        return self.layers * (self.block + self.block_norms + self.router + self.experts * self.expert) + root

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
            block=attention + (0 if config.experts else mlp),
            block_norms=2 * config.dim,
            router=config.dim * config.experts,
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

    @cached_property
    def members(self) -> dict[str, int]:
        """Group size of each axis, as the collectives see it: FSDP gathers over dp_shard × cp at once."""
        groups = {axis: self.degree(axis) for axis in ("pp", "dp_replicate", "cp", "tp", "ep")}
        shards = self.degree("dp_shard", "cp")
        return {
            **groups,
            "dp_shard": shards,
            "ep_shard": shards * self.degree("tp") // self.degree("ep"),
            "tokens": shards * self.degree("dp_replicate") * self._token_ranks,
        }

    @property
    def _token_ranks(self) -> int:
        """Over how many tensor ranks the tokens are cut."""
        return self.degree("tp") if "tp_sequence" in self.rows else 1

    def _ends(self) -> tuple[bool, bool]:
        """Whether this rank has the model's first stage, and its last one (the heavier of the two)."""
        last = self.degree("pp") - 1
        stage = last if self.stage is None else self.stage
        return stage == 0, stage == last

    @cached_property
    def names(self) -> dict[str, float]:
        """What the formulas may use; sizes are those of one rank of a tensor, expert and pipeline group."""
        sizes, tp, width = self.sizes, self.degree("tp"), self.profile.gathered
        stages, micro = self.degree("pp"), self.micro_batches
        embeds, predicts = self._ends()
        tokens = self.batch * self.seq / self.degree("dp_replicate", "dp_shard", "cp") / micro
        layers = sizes.layers / stages
        uncut = sizes.block_norms + sizes.router
        block = sizes.block / tp + uncut
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
            "pairs": 1 if sizes.experts else 2,
            "uncut": layers * (2 * bool(sizes.block_norms) + bool(sizes.router)) + (predicts and sizes.root_norms > 0),
            "P_uncut": layers * uncut + predicts * sizes.root_norms,
            "T": tokens,
            "A": tokens * sizes.dim * width,
            "A_rank": tokens * sizes.dim * width / self._token_ranks,
            "Q": tokens * sizes.dim / tp,
            "KV": 2 * tokens * sizes.kv_width / tp,
            "E": sizes.experts,
            "k": sizes.top_k,
            "compute": width,
            "fsdp": self.degree("dp_shard", "cp"),
            "ep_shard": self.members["ep_shard"],
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


@cache
def _compiled(formula: str) -> CodeType:
    return compile(formula, "workloads.common.states", "eval")


def _value(formula: str, names: Mapping[str, float]) -> float:
    """Evaluate one of the table's own formulas, which may use nothing but `names`."""
    return float(eval(_compiled(formula), {"__builtins__": {}}, dict(names)))

"""From the options of `dlaunch plan` to a plan."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.errors import InputError
from launcher.planner.candidates import Candidate, candidates
from launcher.planner.cluster import Machine, device_type, equal_nodes, probed_nodes, with_measured
from launcher.planner.memory import Checkpoint, checkpoint, host_memory_at_start
from launcher.planner.model import Model, from_config, from_parameters, from_preset
from launcher.planner.question import Question
from launcher.planner.reasons import reasons
from workloads.common.config import PRESETS
from workloads.common.costs import Sizes


@dataclass(frozen=True)
class PlanRequest:
    """The options, as typed; None where they were not given."""

    params: float | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    vocab: int | None = None
    experts: int | None = None
    top_k: int | None = None
    config: Path | None = None
    preset: str | None = None
    batch: int | None = None
    seq: int = 4096
    profile: str = "fsdp2"
    cluster: str | None = None
    inventory: Path | None = None
    nodes: int | None = None
    devices_per_node: int | None = None
    device_type: str | None = None
    device_gb: float | None = None
    tflops: float | None = None
    nics_per_node: int | None = None
    nic_gbps: float | None = None
    write_gbytes: float = 2.0


@dataclass(frozen=True)
class Plan:
    """The question and its answer, the best candidate first."""

    question: Question
    ranked: Sequence[Candidate]
    reasons: Sequence[str]
    checkpoint: Checkpoint
    command: str

    @property
    def best(self) -> Candidate:
        return self.ranked[0]

    def to_json(self) -> dict[str, Any]:
        question, tokens = self.question, self.question.tokens
        return {
            "best": self.best.to_json(tokens),
            "candidates": [each.to_json(tokens) for each in self.ranked],
            "reasons": list(self.reasons),
            "command": self.command,
            "model": {"parameters": question.model.sizes.total, "active_parameters": question.model.sizes.active},
            "checkpoint": vars(self.checkpoint),
            "host_memory_bytes": {"meta_device": 0, "whole_model": host_memory_at_start(question)},
        }


def planned(request: PlanRequest) -> Plan:
    """Raises InputError (options, files, no valid mesh) and CannotActError (hosts that do not answer)."""
    machine = machine_of(request)
    batch = request.batch or machine.world
    question = Question(model_of(request), machine, batch, request.seq, request.profile)
    ranked = candidates(question)
    if not ranked:
        raise InputError(
            f"no mesh of {machine.world} devices divides {batch} sequences of {request.seq} tokens, "
            f"{question.model.heads} heads and {question.model.sizes.layers} layers",
            where="--batch",
            help=f"a --batch that is a multiple of {machine.world}",
        )
    return Plan(
        question,
        ranked,
        reasons(question, ranked),
        checkpoint(question, request.write_gbytes),
        command(question, ranked[0], request.cluster),
    )


def model_of(request: PlanRequest) -> Model:
    """Raises InputError unless exactly one source of the model is given."""
    given = [name for name in ("params", "config", "preset") if getattr(request, name) is not None]
    if len(given) != 1:
        raise InputError(
            "which model? give one of --params, --config, --preset"
            if not given
            else f"{' and '.join(given)} exclude each other",
            where="--params",
            help="for example --params 7e9 --layers 32 --hidden 4096",
        )
    if request.params is not None:
        return from_parameters(
            request.params, request.layers, request.hidden, request.heads, request.vocab, request.experts, request.top_k
        )
    if request.config is not None:
        return from_config(_document(request.config), str(request.config))
    return from_preset(request.preset or "", request.experts, request.top_k)


def _document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read: {error.strerror}", where=str(file)) from error
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where=str(file)) from error
    if not isinstance(document, dict):
        raise InputError("not a JSON object", where=str(file), help="the config.json of a Hugging Face model")
    return document


def machine_of(request: PlanRequest) -> Machine:
    """A cluster on paper where its device type or nodes are given without --cluster, else the probed inventory."""
    if request.cluster is None and request.device_type is not None:
        device = device_type(request.device_type, request.device_gb, request.tflops)
        return equal_nodes(
            request.nodes or 1, request.devices_per_node or 8, device, request.nics_per_node, request.nic_gbps
        )
    return _probed(request)


def _probed(request: PlanRequest) -> Machine:
    from launcher.inventory import load_inventory
    from launcher.placement.cluster import Network
    from launcher.placement.measured import kept_measures
    from launcher.topology.source import topologies_of

    hosts = topologies_of([], request.cluster, request.inventory)
    if request.nodes is not None and request.nodes > len(hosts):
        raise InputError(f"{request.nodes} nodes asked for, there are {len(hosts)}", where="--nodes")
    hosts = hosts[: request.nodes]
    models = [device.model for host in hosts for device in host.devices if device.model]
    device = device_type(request.device_type or (models[0] if models else None), request.device_gb, request.tflops)
    network = Network(request.nics_per_node, request.nic_gbps / 8 if request.nic_gbps else None)
    machine = probed_nodes(hosts, request.devices_per_node, device, network)
    inventory, file = load_inventory(request.inventory)
    return with_measured(machine, kept_measures(inventory.cluster(request.cluster)[0], file))


def command(question: Question, best: Candidate, cluster: str | None) -> str:
    """The `dlaunch run` line: the bundled workload on this mesh, with the preset that is nearest to the model."""
    machine, where = question.machine, f"--cluster {cluster} " if cluster else ""
    return (
        f"dlaunch run workloads/nd.py {where}--nodes {machine.nodes} --nproc-per-node {machine.per_node} "
        f"--mesh {best.mesh} -- --preset {nearest_preset(question.model)}{_experts(question.model)} "
        f"--batch {question.batch} --seq {question.seq} --accumulate {best.micro_batches} --dtype bfloat16"
        + (" --recompute" if best.checkpointing else "")
    )


def nearest_preset(model: Model) -> str:
    """By the number of active parameters."""
    size = model.sizes.active
    return min(PRESETS, key=lambda name: abs(math.log(Sizes.of(PRESETS[name]).total / size)))


def _experts(model: Model) -> str:
    return f" --experts {model.sizes.experts} --top-k {model.sizes.top_k}" if model.sizes.experts else ""

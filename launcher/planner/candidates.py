"""Every mesh that the model, the batch and the cluster allow, each with its best way to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.planner.memory import Offload, device_memory, offload
from launcher.planner.question import Question, case_of
from launcher.planner.time import StepTime, step_time
from launcher.spec import AXES, EXPERT_AXIS, MeshSpec
from workloads.common.costs import Case, Traffic

SAME = 0.05  # relative difference of times that the model cannot tell apart
FAR = 5  # more cuts than any mesh has
MESSAGE_S = 10e-6  # a message's launch and flight, which nobody measured: counted in ranking, not in the times shown


@dataclass(frozen=True)
class Candidate:
    """One mesh with the micro-batches and checkpointing that suit it best; bytes are per rank and step."""

    mesh: MeshSpec
    micro_batches: int
    checkpointing: bool
    fits: bool
    memory: Mapping[str, float]
    traffic: tuple[Traffic, ...]
    time: StepTime
    offload: Offload | None = None  # what keeping the state on the host would change

    @property
    def cost(self) -> float:
        """By which candidates are ranked, in seconds: the middle of the band, and what it leaves out for messages."""
        return (self.time.step + self.time.overlapped) / 2 + self.time.messages * MESSAGE_S

    @property
    def cuts(self) -> int:
        """Along how many axes the model itself is cut: each is one more thing that has to be right."""
        return sum(self.mesh.degrees.get(axis, 1) > 1 for axis in ("pp", "cp", "tp", EXPERT_AXIS))

    def bytes_by_axis(self, sent: bool = True) -> dict[str, float]:
        """Sent over a ring, or logical: without its (n − 1)/n."""
        volumes: dict[str, float] = {}
        for part in self.traffic:
            volumes[part.axis] = volumes.get(part.axis, 0.0) + (part.sent if sent else part.logical)
        return volumes

    def to_json(self, tokens: int) -> dict[str, Any]:
        time = self.time
        return {
            "mesh": dict(self.mesh.degrees),
            "fits": self.fits,
            "micro_batches": self.micro_batches,
            "checkpointing": self.checkpointing,
            "memory_bytes": dict(self.memory),
            "traffic_bytes": self.bytes_by_axis(),
            "logical_bytes": self.bytes_by_axis(sent=False),
            "time_s": {
                "compute": time.compute,
                "communication": time.communication,
                "step": time.step,
                "step_overlapped": time.overlapped,
                "by_axis": dict(time.axes),
            },
            "bubble": time.bubble,
            "offload": self.offload
            and {
                "memory_bytes": self.offload.memory,
                "host_bytes": self.offload.host,
                "time_s": self.offload.seconds,
            },
            "tokens_per_s": [tokens / time.step, tokens / time.overlapped],
            "efficiency": list(time.efficiency),
        }


def candidates(question: Question) -> list[Candidate]:
    """One for each valid mesh, the best first.

    Of those that fit and are as fast as the fastest to within what an estimate can tell, the ones with fewest cuts come
    first; then by time. Behind them those that do not fit, by memory.
    """
    found = [settled(question, mesh) for mesh in valid_meshes(question)]
    fitting = [each for each in found if each.fits]
    near = (1 + SAME) * min((each.cost for each in fitting), default=0.0)
    others = [each for each in found if not each.fits]
    return [
        *sorted(fitting, key=lambda each: (each.cuts if each.cost <= near else FAR, each.cost)),
        *sorted(others, key=lambda each: each.memory["total"]),
    ]


def valid_meshes(question: Question) -> Iterator[MeshSpec]:
    """The meshes of all devices that workloads/nd.py can run: every degree divides what it cuts."""
    model, world = question.model, question.machine.world
    for pp in filter(lambda degree: splits(model.sizes.layers, degree), divisors(world)):
        for tp in filter(lambda degree: cuts_heads(question, degree), divisors(world // pp)):
            for cp in filter(lambda degree: cuts_sequence(question.seq, degree, tp), divisors(world // pp // tp)):
                yield from _data_meshes(question, pp, cp, tp)


def _data_meshes(question: Question, pp: int, cp: int, tp: int) -> Iterator[MeshSpec]:
    data = question.machine.world // (pp * cp * tp)
    if question.batch % data or (pp > 1 and question.batch // data < pp):  # 1F1B needs a micro-batch for each stage
        return
    for shard in divisors(data):
        degrees = dict(zip(AXES, (pp, data // shard, shard, cp, tp), strict=True))
        for ep in expert_degrees(question.model.sizes.experts, shard * cp * tp):
            wide = {axis: degree for axis, degree in {**degrees, EXPERT_AXIS: ep}.items() if degree > 1}
            yield MeshSpec(wide or {"dp_replicate": 1})


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def splits(layers: int, stages: int) -> bool:
    """Equal stages, or one layer fewer on the first and on the last, which also embed and predict."""
    return stages <= layers and (layers % stages == 0 or (stages > 1 and (layers + 2) % stages == 0))


def cuts_heads(question: Question, tp: int) -> bool:
    return question.model.heads % tp == 0 and question.model.kv_heads % tp == 0 and question.seq % tp == 0


def cuts_sequence(seq: int, cp: int, tp: int) -> bool:
    """The ring's load balance gives each rank two pieces."""
    return cp == 1 or seq % (2 * cp * tp) == 0


def expert_degrees(experts: int, block: int) -> list[int]:
    return [degree for degree in divisors(block) if experts % degree == 0] if experts else [1]


def settled(question: Question, mesh: MeshSpec) -> Candidate:
    """The fastest of: with and without checkpointing, each with the fewest micro-batches that fit.

    A pipeline takes as many micro-batches as it can, for its bubble. If nothing fits, what needs least memory.
    """
    counts = micro_batch_counts(question, mesh)
    plain = _smallest_fitting(question, mesh, counts, checkpointing=False)
    if plain.fits and plain.case.micro_batches == counts[0]:  # then checkpointing only adds compute
        return _completed(question, plain)
    tried = [plain, _smallest_fitting(question, mesh, counts, checkpointing=True)]
    if any(each.fits for each in tried):
        return min((_completed(question, each) for each in tried if each.fits), key=lambda each: each.cost)
    return _completed(question, min(tried, key=lambda each: each.memory["total"]))


def micro_batch_counts(question: Question, mesh: MeshSpec) -> list[int]:
    data = mesh.degrees.get("dp_replicate", 1) * mesh.degrees.get("dp_shard", 1)
    counts = divisors(question.batch // data)
    return counts[-1:] if mesh.degrees.get("pp", 1) > 1 else counts


@dataclass(frozen=True)
class _Trial:
    case: Case
    memory: Mapping[str, float]
    fits: bool


def _smallest_fitting(question: Question, mesh: MeshSpec, counts: Sequence[int], checkpointing: bool) -> _Trial:
    """With the fewest micro-batches that fit, else with the most. More of them never need more memory."""
    first = _tried(question, mesh, counts[0], checkpointing)
    if first.fits or len(counts) == 1:
        return first
    best = _tried(question, mesh, counts[-1], checkpointing)
    if not best.fits:
        return best
    low, high = 1, len(counts) - 1  # counts[high] fits
    while low < high:
        middle = (low + high) // 2
        trial = _tried(question, mesh, counts[middle], checkpointing)
        if trial.fits:
            best, high = trial, middle
        else:
            low = middle + 1
    return best


def _tried(question: Question, mesh: MeshSpec, micro_batches: int, checkpointing: bool) -> _Trial:
    case = case_of(question, mesh, micro_batches, checkpointing)
    memory = device_memory(question, case)
    return _Trial(case, memory, memory["total"] <= question.machine.device.memory)


def _completed(question: Question, trial: _Trial) -> Candidate:
    case, traffic = trial.case, tuple(trial.case.traffic())
    return Candidate(
        MeshSpec(case.degrees),
        case.micro_batches,
        case.checkpointing,
        trial.fits,
        trial.memory,
        traffic,
        step_time(question, case, traffic),
        offload(question, case.micro_batches, trial.memory),
    )

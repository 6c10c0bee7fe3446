"""Why a mesh is recommended: each axis against the best mesh without it, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.planner.candidates import Candidate
from launcher.planner.question import Question
from launcher.planner.text import bytes_text, seconds_text
from launcher.spec import AXES, EXPERT_AXIS

PURPOSES = {
    "dp_shard": "shards parameters, gradients and optimizer state",
    "dp_replicate": "keeps replicas, so that only one all-reduce of a shard a step crosses them",
    "tp": "cuts every matrix, and its exchanges cannot be hidden, so it stays inside a node",
    "pp": "makes stages, whose boundaries send least of all",
    "cp": "cuts the sequence, and with it the activations",
    "ep": "spreads the experts",
}
CRITICAL_TOKENS = 7.4e6  # 2e8 · loss^(−1/0.21) at a loss of 2 (Kaplan et al. 2020, eq. 1.4)


def reasons(question: Question, ranked: Sequence[Candidate]) -> list[str]:
    """The chain of reasons for ranked[0], in sentences."""
    best = ranked[0]
    if not best.fits:
        return [*_nothing_fits(question, ranked)]
    chain = [
        *_state(question),
        f"{best.mesh} takes {_band(best)} a step",
        *_axes(ranked),
        *_activations(best),
        *([_offload(best)] if best.offload else []),
        *_losses(best),
        *_algorithm(question),
    ]
    return [*chain, *question.model.notes, *question.machine.notes, *_assumptions(question)]


def _nothing_fits(question: Question, ranked: Sequence[Candidate]) -> Iterator[str]:
    best, room = ranked[0], question.machine.device.memory
    yield (
        f"no mesh fits: the least, {best.mesh}, needs {bytes_text(best.memory['total'])} a device, which has "
        f"{bytes_text(room)}; take more devices, larger ones, or a shorter --seq"
    )
    helped = [each for each in ranked if each.offload and each.offload.memory <= room]
    if helped:
        yield _offload(min(helped, key=lambda each: each.cost + (each.offload.seconds if each.offload else 0.0)))


def _offload(candidate: Candidate) -> str:
    """What it costs to keep the state on the host."""
    moved = candidate.offload
    assert moved
    return (
        f"with parameters, gradients and optimizer on the host (workloads/fsdp.py --offload) {candidate.mesh} needs "
        f"{bytes_text(moved.memory)} a device and {bytes_text(moved.host)} on each host, and copies over PCIe take "
        f"{seconds_text(moved.seconds)} a step, beside the optimizer's time on the host's CPUs"
    )


def _state(question: Question) -> Iterator[str]:
    whole, room = question.model.sizes.total * 16, question.machine.device.memory
    verdict = "does not fit" if whole > room else "fits"
    yield f"the whole state is {bytes_text(whole)} and {verdict} on one device of {bytes_text(room)}"


def _axes(ranked: Sequence[Candidate]) -> Iterator[str]:
    """For every axis what the best mesh that decides otherwise would cost."""
    best = ranked[0]
    for axis in (*AXES, EXPERT_AXIS):
        used = best.mesh.degrees.get(axis, 1)
        other = next((each for each in ranked if (each.mesh.degrees.get(axis, 1) > 1) != (used > 1)), None)
        if other is not None and used > 1:
            yield f"{axis}={used} {PURPOSES[axis]}; {_without(best, other)}"
        elif other is not None and other.fits:
            yield f"no {axis}: {_with(best, other)}"


def _without(best: Candidate, other: Candidate) -> str:
    if not other.fits:
        return f"without it even {other.mesh} needs {bytes_text(other.memory['total'])} a device"
    return f"without it {_compared(best, other)}"


def _with(best: Candidate, other: Candidate) -> str:
    return f"with it {_compared(best, other)}"


def _compared(best: Candidate, other: Candidate) -> str:
    """The other's time; a mesh with more cuts is not taken for a gain that the model cannot tell."""
    gain = 1 - other.cost / best.cost
    verdict = f"{gain:.0%} faster, too little to trust" if gain > 0 else f"{-gain:.0%} slower"
    return f"{other.mesh} takes {_band(other)} a step, {verdict}"


def _band(candidate: Candidate) -> str:
    return f"{seconds_text(candidate.time.overlapped)}–{seconds_text(candidate.time.step)}"


def _activations(best: Candidate) -> Iterator[str]:
    held = bytes_text(best.memory["activations"])
    yield (
        f"activations take {held}"
        + (", checkpointed for a third more compute" if best.checkpointing else ", kept whole")
        + (f", in {best.micro_batches} micro-batches" if best.micro_batches > 1 else "")
    )


def _losses(best: Candidate) -> Iterator[str]:
    """Why the step is not linear in the number of devices: communication, waiting, compute."""
    time = best.time
    exposed = time.communication - time.hidden
    yield (f"communication is {seconds_text(time.communication)}, of which {seconds_text(exposed)} cannot be hidden")
    if time.bubble:
        share = best.micro_batches / best.mesh.degrees["pp"]
        advice = "" if share >= 4 else f"; M = {share:g}·K, from 4·K on it is small"
        yield f"waiting: the pipeline's bubble is {time.bubble:.0%} of the time{advice}"
    low, high = time.efficiency
    yield f"efficiency is {low:.0%}–{high:.0%} of the devices' speed: no overlap, and all that can be hidden is"


def _algorithm(question: Question) -> Iterator[str]:
    tokens = question.tokens
    yield f"the global batch stays at {tokens:,} tokens, so learning rate and loss curve do not change"
    if tokens > CRITICAL_TOKENS:
        yield f"warning: that is more than the critical batch of about {CRITICAL_TOKENS:,.0f} tokens: part is wasted"
    if question.batch < question.machine.world:
        yield f"{question.batch} sequences on {question.machine.world} devices: data parallelism alone cannot use all"


def _assumptions(question: Question) -> Iterator[str]:
    device = question.machine.device
    yield f"assumed: {device.flops / 1e12:g} TFLOP/s reached by each {device.name} (--tflops tells better)"
    if not question.machine.measured:
        yield "assumed: link speeds by type, and no latency (`dlaunch bench comm` measures them)"

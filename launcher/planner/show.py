"""A plan for people: table, bars of time, reasons, command."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.planner.candidates import Candidate
from launcher.planner.request import Plan
from launcher.planner.text import bytes_text, seconds_text

MOST_ROWS = 12
BAR = 48


def lines(plan: Plan) -> list[str]:
    """The whole answer; where nothing fits there is nothing to run."""
    shown = [*table(plan), "", *bars(plan.best), "", *(f"- {reason}" for reason in plan.reasons)]
    return [*shown, *_checkpoint(plan), "", plan.command] if plan.best.fits else shown


def table(plan: Plan) -> Iterator[str]:
    model, machine = plan.question.model, plan.question.machine
    yield (
        f"{model.name} ({model.sizes.total:.3g} parameters) on {machine.nodes} × {machine.per_node} "
        f"{machine.device.name}, {plan.question.batch} sequences of {plan.question.seq} tokens"
    )
    yield f"{'mesh':<44}{'micro':>6}{'memory':>10}{'step, overlapped–not':>24}{'efficiency':>12}"
    for each in plan.ranked[:MOST_ROWS]:
        yield _row(each)
    if len(plan.ranked) > MOST_ROWS:
        fitting = sum(each.fits for each in plan.ranked)
        yield f"… {len(plan.ranked)} meshes in all, {fitting} of them fit (all with --json)"


def _row(each: Candidate) -> str:
    time, (low, high) = each.time, each.time.efficiency
    micro = f"{each.micro_batches}{'c' if each.checkpointing else ''}"
    band = f"{seconds_text(time.overlapped)}–{seconds_text(time.step)}" if each.fits else "does not fit"
    efficiency = f"{low:.0%}–{high:.0%}" if each.fits else ""
    return f"{each.mesh!s:<44}{micro:>6}{bytes_text(each.memory['total']):>10}{band:>24}{efficiency:>12}"


def bars(best: Candidate) -> Iterator[str]:
    """Seconds of compute and of each axis' communication, to one scale."""
    parts = {"compute": best.time.compute, **best.time.axes}
    longest = max(parts.values())
    yield f"one step of {best.mesh}, nothing overlapped ({seconds_text(best.time.step)}):"
    for name, seconds in parts.items():
        bar = "█" * max(1, round(BAR * seconds / longest))
        yield f"{name:<13}{bar} {seconds_text(seconds)}"


def _checkpoint(plan: Plan) -> Iterator[str]:
    cost = plan.checkpoint
    yield (
        f"- a checkpoint is {bytes_text(cost.bytes)}, written in {seconds_text(cost.write_s)}; "
        f"take one every {seconds_text(cost.interval_s)} (Young–Daly)"
    )

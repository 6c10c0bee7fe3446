"""The tables of docs/benchmarks.md, from the documents of the programs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

MEGA = 1e6


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 0.1 else f"{value:.2f} s"


def middle(samples: Iterable[Any], key: str) -> str:
    return seconds(statistics.median(sample[key] for sample in samples))


def launch(document: Any) -> list[str]:
    sides = (document["dlaunch"], document["torchrun"])
    rows = [
        [label, *(middle(side, key) for side in sides)]
        for label, key in (("to the first step", "first_step_s"), ("whole run", "whole_s"))
    ]
    commands = [[f"`{name}`", seconds(value)] for name, value in document["commands"].items()]
    title = f"4 nodes of 2 ranks, `hsdp.py --steps 20`, medians of {document['rounds']} rounds:"
    return [
        title,
        "",
        *table(("", "`dlaunch run`", "4 bare torchruns"), rows),
        "",
        *table(("command", "median of 9"), commands),
    ]


def hosts(document: Any) -> list[str]:
    rows = [[side, middle(document[side], "wall_s"), middle(document[side], "cpu_s")] for side in ("dlaunch", "clush")]
    title = f"{document['hosts']} SSH hosts, connect and run `true`, medians of {document['rounds']} rounds:"
    worst = {key: max(left[key] for left in document["left"]) for key in document["left"][0]}
    left = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in worst.items())
    return [title, "", *table(("", "wall", "CPU of the client"), rows), "", f"Left afterwards, worst round: {left}."]


def preflight(document: Any) -> list[str]:
    rows = [
        [
            "`dlaunch preflight --quick`",
            middle(document["preflight"], "wall_s"),
            middle(document["preflight"], "cpu_s"),
        ],
        ["`clush -a hostname`", middle(document["clush"], "wall_s"), middle(document["clush"], "cpu_s")],
    ]
    first = f"The first call, which also sends our node side: {seconds(document['first_s'])}."
    return [*table((f"{document['hosts']} SSH hosts", "wall", "CPU of the client"), rows), "", first]


def slurm(document: Any) -> list[str]:
    medians = {key: seconds(statistics.median(document[key])) for key in ("dlaunch", "plain", "ps", "squeue")}
    rows = [
        ["submission to the first rank", medians["dlaunch"], f"{medians['plain']} (sbatch, srun, torchrun)"],
        [f"`ps`, {document['queue']} jobs in the queue", medians["ps"], f"{medians['squeue']} (squeue)"],
    ]
    return [
        *table(("two nodes", "dlaunch", "plain Slurm"), rows),
        "",
        f"squeue calls of one `ps`: {document['squeue_calls_of_one_ps']}.",
    ]


def placement(document: Any) -> list[str]:
    rows = [
        [f"{row['ranks']:,.0f}", seconds(row["seconds"]), seconds(row["cpu_s"]), f"{row['peak_mb']:.0f} MB"]
        for row in document["rows"]
    ]
    return table(("ranks", "wall", "CPU", "peak memory"), rows)


def plan(document: Any) -> list[str]:
    rows = [
        [
            f"`{one['mesh']}`",
            f"{seconds(one['overlapped_s'])}–{seconds(one['predicted_s'])}",
            seconds(one["measured_s"]),
            f"{one['error']:+.0%}",
        ]
        for one in document["rows"]
    ]
    return [f"{document['measured']}.", "", *table(("two ranks", "predicted", "measured", "error"), rows)]


def tui(document: Any) -> list[str]:
    cases = {"files": "samples from files", "memory": "drawing alone", "bare": "a Textual app of one line"}
    rows = [
        [
            f"{one['ranks']:,} ranks, {cases[one['case']]}" if one["ranks"] else cases[one["case"]],
            f"{one['cpu']:.1%}", f"{one['rss']:.0f} MB",
            *(f"{seconds(one[key])} ({seconds(one[f'{key}_cpu'])})" for key in ("first_paint", "key_to_paint")),
        ]
        for one in document["results"]
    ]  # fmt: skip
    return table(("", "of a core", "memory", "first paint (CPU time)", "key to paint (CPU time)"), rows)


def doctor(document: Any) -> list[str]:
    sides = [("`ddoctor hang`", document["ours"]), ("`torchfrtrace`", document.get("torchfrtrace"))]
    rows = [
        [name, seconds(cost["wall_s"]), seconds(cost["cpu_s"]), f"{cost['peak_bytes'] / MEGA:.0f} MB"]
        for name, cost in sides
        if cost
    ]
    load = f" A plain `pickle.load` of them: {seconds(document['load_s'])}." if document["load_s"] else ""
    size = f"{document['ranks']:,} ranks, {document['bytes'] / MEGA:.0f} MB of evidence.{load}"
    return [*table(("", "wall", "CPU", "peak memory"), rows), "", size]


def doctor_log(document: Any) -> list[str]:
    rows = [
        [name, seconds(document[key]["wall_s"]), f"{document['bytes'] / document[key]['cpu_s'] / MEGA:.0f} MB/s",
         f"{document[key]['peak_bytes'] / MEGA:.0f} MB"]
        for name, key in (("`ddoctor diagnose`", "ours"), ("`grep -c`", "grep"))
    ]  # fmt: skip
    return table((f"NCCL log of {document['bytes'] / MEGA:.0f} MB", "wall", "per core", "peak memory"), rows)


def workloads(document: Any) -> list[str]:
    rows = [
        [f"{one['strategy']}, {one['ranks']} ranks", seconds(one["ours_s"]), seconds(one["minimal_s"]),
         f"{one['overhead']:+.1%}", f"{one['cpu_overhead']:+.1%}", f"{one['tokens_per_s']:,.0f}"]
        for one in document["results"]
    ]  # fmt: skip
    instruments = [
        [one["what"], f"{one['cost_s'] * 1e6:.1f} µs", f"{one['per_step']:.0f}", f"{one['share']:.2%}"]
        for one in document["instruments"]
    ]
    return [
        *table(("a step of", "ours", "hand-written loop", "by the clock", "of CPU", "tokens/s"), rows),
        "",
        *table(("of a step of FSDP", "each", "a step", "share"), instruments),
    ]

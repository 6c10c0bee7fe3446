"""One rank: its process, device and host, its progress, its live log; its stack on `s`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from tui.headline import ago, headline
from tui.metrics import BY_KEY
from tui.rows import coordinate
from tui.screens.logs import LogPane
from tui.snapshot import STATES, Snapshot
from tui.view import Line, View, keys

Fact = tuple[str, str]


def facts(snapshot: Snapshot, rank: int) -> Text:
    """What is known of a rank: lines on its process, progress, device and host."""
    value = {name: float(array[rank]) for name, array in snapshot.measures.items()}
    text = Text()
    for line in (_process(snapshot, rank, value), _progress(snapshot, rank, value), _device(snapshot, rank, value)):
        _append(text, line)
    _append(text, _host(snapshot, snapshot.job.node_of[rank]))
    text.right_crop(1)
    return text


def _append(text: Text, line: list[Fact]) -> None:
    for label, words in line:
        text.append(f" {label} ", "dim").append(f"{words} ")
    text.append("\n")


def _process(snapshot: Snapshot, rank: int, value: dict[str, float]) -> list[Fact]:
    return [
        ("process", f"pid {_with(value['pid'], '{:.0f}')} {STATES[int(snapshot.state[rank])]}"),
        ("CPU", _with(value["cpu"], "{:.2f} cores")),
        ("resident", _with(value["rss"] / 1e9, "{:.2f} GB")),
        ("log", _with(value["log_bytes"] / 1e6, "{:.2f} MB")),
    ]


def _progress(snapshot: Snapshot, rank: int, value: dict[str, float]) -> list[Fact]:
    quiet = snapshot.time - value["progress_time"]
    return [
        ("progress", f"step {_with(value['step'], '{:.0f}')} of {_with(value['total'], '{:.0f}')}"),
        ("loss", _with(value["loss"], "{:.4g}")),
        ("step time", _with(value["step_s"], "{:.3g} s")),
        ("data wait", BY_KEY["data"].text(float(BY_KEY["data"].values(snapshot)[rank]))),
        ("tokens/s", _with(value["tokens_per_s"], "{:,.0f}")),
        ("quiet for", "–" if np.isnan(quiet) else ago(quiet)),
        *([("in", snapshot.collectives[rank])] if rank in snapshot.collectives else []),
    ]


def _device(snapshot: Snapshot, rank: int, value: dict[str, float]) -> list[Fact]:
    devices = snapshot.job.devices
    return [
        ("device", (devices[rank] if rank < len(devices) else None) or "CPU"),
        ("use", _with(value["device_util"], "{:.0f} %")),
        ("memory", _of(value["device_memory"], value["device_memory_total"])),
        ("temperature", _with(value["temperature"], "{:.0f} °C")),
    ]


def _host(snapshot: Snapshot, node: int) -> list[Fact]:
    nodes = snapshot.nodes
    lost = f" — {nodes.lost[node]}" if node in nodes.lost else ""
    return [
        ("host", snapshot.job.hosts[node] + lost),
        ("load", _with(float(nodes.load[node]), "{:.1f}")),
        ("memory", _of(float(nodes.memory[node]), float(nodes.memory_total[node]))),
        ("network out", _with(float(nodes.sent[node]) / 1e6, "{:.1f} MB/s")),
        ("in", _with(float(nodes.received[node]) / 1e6, "{:.1f} MB/s")),
        ("watching costs", _with(100 * float(nodes.cost[node]), "{:.2f} % of a core")),
    ]


def _of(part: float, whole: float) -> str:
    return f"{_with(part / 1e9, '{:.1f}')} of {_with(whole / 1e9, '{:.1f} GB')}"


def _with(value: float, form: str) -> str:
    return "–" if np.isnan(value) else form.format(value)


class RankScreen(View):
    """Facts above, log below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "app.open('stacks')", "stack"),
        Binding("d", "app.open('doctor')", "diagnose"),
        Binding("L", "app.open('logs')", "logs of more ranks"),
        Binding("f", "follow", "follow the log"),
        Binding("left_square_bracket", "other(-1)", "rank before"),
        Binding("right_square_bracket", "other(1)", "next rank"),
        Binding("escape,b", "app.leave", "back"),
    ]
    KEYS = ("s stack", "[ ] other rank", "L logs", "d diagnose", "f follow", "b back", "? help")
    HELP = "What a rank's process, device and host do now, and its log as it grows."

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    @property
    def selected(self) -> list[int]:
        return [self.rank]

    def compose(self) -> ComposeResult:
        yield Line(id="head")
        yield Line(id="legend")
        yield Static(id="facts")
        yield LogPane(id="log")
        yield Line(keys(*self.KEYS), id="keys")

    def on_mount(self) -> None:
        pane = self.query_one(LogPane)
        pane.focus()
        pane.follow([self.rank])

    def show(self, snapshot: Snapshot) -> None:
        if self.rank >= snapshot.world_size:
            return
        self.query_one("#head", Line).set(headline(snapshot, self.top.marks))
        mark = next((f" · ⚠ {alarm.text}" for alarm in snapshot.alarms if self.rank in alarm.ranks), "")
        legend = Text(f" rank {self.rank} · {coordinate(snapshot.job, self.rank)} ", "bold")
        self.query_one("#legend", Line).set(legend.append(mark, "bold #ff8c5a"))
        self.query_one("#facts", Static).update(facts(snapshot, self.rank))

    def action_other(self, by: int) -> None:
        if self.top.snapshot is None:
            return
        self.rank = (self.rank + by) % self.top.snapshot.world_size
        self.query_one(LogPane).follow([self.rank])
        self.show(self.top.snapshot)

    def action_follow(self) -> None:
        self.query_one(LogPane).action_follow()

    def command(self) -> list[str]:
        job = self.top.snapshot.job.job if self.top.snapshot else "last"
        return ["dlaunch", "logs", job, "--rank", str(self.rank), "--follow"]

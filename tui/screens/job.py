"""The job: heat map of its ranks, plots, the worst ranks, what happened last."""

from __future__ import annotations

import time
from typing import ClassVar

import numpy as np
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from launcher.hosts.names import fold
from tui.filter import matching
from tui.grid import layouts
from tui.headline import headline
from tui.metrics import LETTER_OF_CODE, METRICS, STATE_OF_CODE, badness
from tui.palette import PALETTES, block_style
from tui.rows import COLUMNS, coordinate, rank_rows
from tui.snapshot import STATES, Snapshot
from tui.view import Line, View, keys
from tui.widgets.heatmap import HeatMap
from tui.widgets.plot import Plot
from tui.widgets.table import LineTable

WORST = 200


class JobScreen(View):
    """Colours by one metric; everything else follows from the rank under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "metric(1)", "next metric"),
        Binding("M", "metric(-1)", "metric before"),
        Binding("v", "sides", "other sides of the map"),
        Binding("p", "palette", "other colours"),
        Binding("d", "app.open('doctor')", "diagnose"),
        Binding("s", "app.open('stacks')", "stacks"),
        Binding("L", "app.open('logs')", "logs"),
        Binding("t", "app.open('topology')", "topology"),
        Binding("x", "stop", "stop the job"),
        Binding("slash", "filter", "filter"),
        Binding("n", "next_alarm", "next alarmed rank"),
        Binding("escape,b", "app.leave", "back"),
    ]
    KEYS = (
        "⏎ rank",
        "m metric",
        "v sides",
        "d diagnose",
        "s stack",
        "L logs",
        "t topo",
        "x stop",
        "/ filter",
        "? help",
    )
    HELP = "Each cell is a rank, or the worst of several. m: what the colours mean. v: hosts or mesh axes as sides."

    def __init__(self) -> None:
        super().__init__()
        self._shown: Snapshot | None = None
        self._filter = ""

    def compose(self) -> ComposeResult:
        colourless = self.top.options.colourless
        yield Line(" opening…", id="head")
        yield Line(id="legend")
        yield HeatMap(colourless=colourless, id="map")
        yield Line(id="cell")
        with Horizontal(id="plots"):
            yield Plot("loss", colourless=colourless, id="loss")
            yield Plot("tokens/s", colourless=colourless, id="tokens")
            yield Plot("step time", "s", colourless=colourless, id="step_s")
        yield LineTable(*COLUMNS, empty="no rank is known yet", id="worst")
        yield Line(id="event")
        yield Line(keys(*self.KEYS), id="keys")

    def on_mount(self) -> None:
        self.query_one(HeatMap).focus()

    @property
    def selected(self) -> list[int]:
        """The ranks under the cursor."""
        table = self.query_one(LineTable)
        if table.has_focus and table.key is not None:
            return [int(table.key)]
        return self.query_one(HeatMap).ranks()

    def show(self, snapshot: Snapshot) -> None:
        if snapshot is self._shown:
            return
        self._shown = snapshot
        self.query_one("#head", Line).set(headline(snapshot, self.top.marks))
        heat = self.query_one(HeatMap)
        heat.show(snapshot)
        self.query_one("#legend", Line).set(self._legend(heat, snapshot))
        self._show_cell()
        history = snapshot.history
        self.query_one("#loss", Plot).show(history.loss)
        self.query_one("#tokens", Plot).show(history.tokens_per_s)
        self.query_one("#step_s", Plot).show(history.step_s)
        self.query_one(LineTable).set_rows(rank_rows(snapshot, self._worst(snapshot)))
        self.query_one("#event", Line).set(_event(snapshot))

    def _worst(self, snapshot: Snapshot) -> list[int]:
        """The ranks of the table, worst first: those with an alarm, then by the metric of the map."""
        if not snapshot.world_size:
            return []
        order = badness(self.query_one(HeatMap).metric, snapshot)
        order[list(snapshot.alarmed)] = np.inf
        if self._filter:
            chosen = np.flatnonzero(matching(snapshot, self._filter))
            return [int(rank) for rank in chosen[np.argsort(-order[chosen], kind="stable")][:WORST]]
        count = max(1, min(WORST, self.query_one(LineTable).size.height * 4, snapshot.world_size))
        candidates = np.argpartition(-order, count - 1)[:count]
        return [int(rank) for rank in candidates[np.lexsort((candidates, -order[candidates]))]]

    def _legend(self, heat: HeatMap, snapshot: Snapshot) -> Text:
        text = Text(f" {heat.title} ", no_wrap=True, overflow="ellipsis")
        scale = sorted(STATE_OF_CODE) if heat.metric.key == "state" else range(16)
        for code in scale:
            name = f" {STATE_OF_CODE[code]} " if code in STATE_OF_CODE else " "
            style = Style() if heat.colourless else block_style(heat.palette, code)
            text.append(f"{LETTER_OF_CODE[code]}{name}" if heat.colourless else name, style)
        if heat.metric.key != "state":
            values = heat.metric.values(snapshot)
            known = values[~np.isnan(values)]
            if len(known):
                good, bad = heat.metric.scale(known)
                text.append(f" {heat.metric.text(good)} → {heat.metric.text(bad)}")
            else:
                text.append(" no rank tells it")
        if self._filter:
            text.append(f" · filter {self._filter}", "bold")
        return text

    def _show_cell(self) -> None:
        snapshot, ranks = self._shown, self.selected
        if snapshot is None or not ranks:
            return
        metric = self.query_one(HeatMap).metric
        values = metric.values(snapshot)
        rank = ranks[int(np.argmax(badness(metric, snapshot)[ranks]))]
        who = f"rank {rank}" if len(ranks) == 1 else f"{len(ranks)} ranks from {ranks[0]}, worst rank {rank}"
        where = " ".join(filter(None, (snapshot.job.host_of(rank), coordinate(snapshot.job, rank))))
        step = "" if np.isnan(snapshot.step[rank]) else f" · step {snapshot.step[rank]:.0f}"
        state = STATES[int(snapshot.state[rank])]
        inside = f" · in {snapshot.collectives[rank]}" if rank in snapshot.collectives else ""
        self.query_one("#cell", Line).set(
            f" {who} · {where} · {state}{step}{inside} · {metric.label} {metric.text(float(values[rank]))}"
        )

    def on_heat_map_moved(self, event: HeatMap.Moved) -> None:
        self._show_cell()

    def on_heat_map_chosen(self, event: HeatMap.Chosen) -> None:
        event.stop()
        self.top.open_rank(event.ranks[0])

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        self.top.open_rank(int(event.key))

    def action_metric(self, by: int) -> None:
        heat = self.query_one(HeatMap)
        heat.metric = METRICS[(METRICS.index(heat.metric) + by) % len(METRICS)]
        self._redraw()

    def action_sides(self) -> None:
        if self._shown is None:
            return
        heat, choices = self.query_one(HeatMap), layouts(self._shown.job)
        heat.sides = choices[(choices.index(heat.sides) + 1) % len(choices)] if heat.sides in choices else None
        self._redraw()

    def action_palette(self) -> None:
        heat = self.query_one(HeatMap)
        heat.palette = PALETTES[(PALETTES.index(heat.palette) + 1) % len(PALETTES)]
        self._redraw()

    def _redraw(self) -> None:
        self.query_one(HeatMap).redraw()
        snapshot, self._shown = self._shown, None
        if snapshot is not None:
            self.show(snapshot)

    def action_stop(self) -> None:
        self.top.ask_stop()

    def action_next_alarm(self) -> None:
        if self._shown is not None and self._shown.alarmed:
            ranks = sorted(self._shown.alarmed)
            here = self.selected[0] if self.selected else -1
            self.query_one(HeatMap).go_to(next((rank for rank in ranks if rank > here), ranks[0]))

    def action_filter(self) -> None:
        self.top.ask_text("filter by rank, host, state or coordinate", self._filter, self._set_filter)

    def _set_filter(self, text: str) -> None:
        self._filter = text.strip()
        if self._filter.isdigit() and self._shown and int(self._filter) < self._shown.world_size:
            self.query_one(HeatMap).go_to(int(self._filter))
        self._redraw()

    def command(self) -> list[str]:
        return ["dlaunch", "top", self._shown.job.job if self._shown else "last", "--once"]


def _event(snapshot: Snapshot) -> Text:
    """The alarms, else the last event."""
    text = Text(no_wrap=True, overflow="ellipsis")
    if snapshot.alarms:
        words = "; ".join(alarm.text for alarm in snapshot.alarms)
        return text.append(f" ⚠ {words} — d diagnoses", "bold #ff8c5a")
    if snapshot.nodes.lost:
        return text.append(
            f" no answer from {fold([snapshot.job.hosts[node] for node in snapshot.nodes.lost])}", "yellow"
        )
    if snapshot.events:
        last = snapshot.events[-1]
        text.append(f" {time.strftime('%H:%M:%S', time.localtime(last.time))} {last.text}", "dim")
    return text

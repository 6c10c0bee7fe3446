"""All jobs on record: running ones first, then the newest."""

from __future__ import annotations

import time
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from launcher.common.text import printable
from launcher.hosts.names import fold
from launcher.jobs.record import ENDED
from launcher.jobs.store import StoredJob, all_jobs, visible_state
from tui.view import Line, View, ago, keys
from tui.widgets.table import Column, LineTable, Row

_PERIOD_S = 1.0
_COLOURS = {"running": Style(color="green"), "failed": Style(color="#ff8c5a"), "unsupervised": Style(color="yellow")}


def job_row(job: StoredJob, now: float) -> Row:
    record, state = job.record, visible_state(job)
    began = record.started or record.created
    hosts = fold(dict.fromkeys(node.host for node in record.nodes))
    age = ago((record.ended or now) - began)
    reason = printable(record.reason).partition("\n")[0]
    cells = [record.job, record.cluster, state, str(len(record.ranks)), age, hosts, reason]
    return Row(record.job, cells, _COLOURS.get(state, Style(dim=state in ENDED)))


class JobsScreen(View):
    """A line per job; ⏎ opens it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter"),
        Binding("x", "stop", "stop the job"),
        Binding("escape", "app.leave", "back", show=False),
    ]
    KEYS = ("⏎ open", "/ filter", "x stop", "c command", "? help", "q quit")
    HELP = "Jobs of all clusters that were started from this machine, those that run first."

    def __init__(self) -> None:
        super().__init__()
        self._filter = ""
        self._jobs: dict[str, StoredJob] = {}

    def compose(self) -> ComposeResult:
        yield Line(Text(" dlaunch top ", "bold reverse"), id="head")
        yield LineTable(
            Column("JOB", 36),
            Column("CLUSTER", 10),
            Column("STATE", 12),
            Column("RANKS", 6, right=True),
            Column("AGE", 7, right=True),
            Column("HOSTS", 18),
            Column("REASON"),
            empty=" no jobs; start one with: dlaunch run SCRIPT",
            id="jobs",
        )
        yield Line(keys(*self.KEYS), id="keys")

    def on_mount(self) -> None:
        self.query_one(LineTable).focus()
        self._read()
        self.set_interval(_PERIOD_S, self._read)

    def _read(self) -> None:
        if self.app.screen is not self:
            return
        jobs = sorted(all_jobs(), key=lambda job: (job.record.state in ENDED, -job.record.created))
        self._jobs = {job.record.job: job for job in jobs}
        rows = [job_row(job, time.time()) for job in jobs]
        self.query_one(LineTable).set_rows([row for row in rows if self._filter in " ".join(row.cells)])
        running = sum(job.record.state not in ENDED for job in jobs)
        shown = f" · filter {self._filter}" if self._filter else ""
        self.query_one("#head", Line).set(
            Text.assemble((" dlaunch top ", "bold reverse"), f" {len(jobs)} jobs, {running} not ended{shown}")
        )

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        self.top.open_job(self._jobs[event.key])

    def action_filter(self) -> None:
        self.top.ask_text("filter", self._filter, self._set_filter)

    def _set_filter(self, text: str) -> None:
        self._filter = text.strip()
        self._read()

    def action_stop(self) -> None:
        key = self.query_one(LineTable).key
        if key is not None:
            self.top.ask_stop(key)

    def command(self) -> list[str]:
        return ["dlaunch", "ps"]

"""All jobs on record, running ones first, then the newest; and those in Slurm's queue that dlaunch did not start."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from launcher.common.text import printable
from launcher.hosts.names import fold
from launcher.jobs.record import ENDED
from launcher.jobs.store import StoredJob, all_jobs, visible_state
from tui.commands import CommandError, run_json
from tui.headline import ago
from tui.rows import Column, Row
from tui.view import Line, View, keys
from tui.widgets.table import LineTable

_PERIOD_S = 1.0
_QUEUE_PERIOD_S = 15.0  # Slurm's controller answers everybody
_COLOURS = {"running": Style(color="green"), "failed": Style(color="#ff8c5a"), "unsupervised": Style(color="yellow")}
_PLAIN = Style()


def job_row(job: StoredJob, now: float) -> Row:
    record, state = job.record, visible_state(job)
    began = record.started or record.created
    hosts = fold(dict.fromkeys(node.host for node in record.nodes))
    age = ago((record.ended or now) - began)
    reason = printable(record.reason).partition("\n")[0]
    cells = [record.job, record.cluster, state, str(len(record.ranks)), age, hosts, reason]
    return Row(record.job, cells, _COLOURS.get(state, Style(dim=state in ENDED)))


def foreign_row(job: Mapping[str, Any], now: float) -> Row:
    """A job of `dlaunch ps --json` that is not on record here."""
    age = ago(now - job["started"]) if job["started"] else ""
    name, reason = printable(str(job["name"])), printable(str(job["reason"]))
    cells = [f"{job['job']} {name}", job["cluster"], job["state"], "", age, "", f"not started by dlaunch · {reason}"]
    return Row(job["job"], cells, _COLOURS.get(job["state"], _PLAIN))


class JobsScreen(View):
    """A line per job; ⏎ opens it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter"),
        Binding("x", "stop", "stop the job"),
        Binding("escape", "app.leave", "back", show=False),
    ]
    KEYS = ("⏎ open", "/ filter", "x stop", "c command", "? help", "q quit")
    HELP = "Jobs that were started from this machine, those that run first; yours in Slurm's queue that were not."

    def __init__(self) -> None:
        super().__init__()
        self._filter = ""
        self._jobs: dict[str, StoredJob] = {}
        self._foreign: Sequence[Mapping[str, Any]] = ()

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
        if shutil.which("squeue") is not None:
            self.set_interval(_QUEUE_PERIOD_S, self._ask_queue)
            self._ask_queue()

    @work(exclusive=True, group="queue")
    async def _ask_queue(self) -> None:
        """`ps` brings the records of Slurm jobs up to date, and tells of the user's other jobs."""
        try:
            rows = (await run_json(["dlaunch", "ps"])).get("jobs", [])
        except CommandError as error:
            self.notify(printable(str(error)), markup=False, severity="warning", title="Slurm's queue")
            return
        self._foreign = [row for row in rows if str(row["job"]).startswith("slurm:")]
        self._read()

    def _read(self) -> None:
        if self.app.screen is not self:
            return
        jobs = sorted(all_jobs(), key=lambda job: (job.record.state in ENDED, -job.record.created))
        self._jobs = {job.record.job: job for job in jobs}
        now = time.time()
        rows = [foreign_row(job, now) for job in self._foreign] + [job_row(job, now) for job in jobs]
        self.query_one(LineTable).set_rows([row for row in rows if self._filter in " ".join(row.cells)])
        running = sum(job.record.state not in ENDED for job in jobs)
        other = f" · {len(self._foreign)} that dlaunch did not start" if self._foreign else ""
        shown = f" · filter {self._filter}" if self._filter else ""
        self.query_one("#head", Line).set(
            Text.assemble((" dlaunch top ", "bold reverse"), f" {len(jobs)} jobs, {running} not ended{other}{shown}")
        )

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        if event.key in self._jobs:
            self.top.open_job(self._jobs[event.key])
        else:
            self.notify(f"its ranks: dlaunch ps {event.key}; what is wrong: ddoctor diagnose {event.key}")

    def action_filter(self) -> None:
        self.top.ask_text("filter", self._filter, self._set_filter)

    def _set_filter(self, text: str) -> None:
        self._filter = text.strip()
        self._read()

    def action_stop(self) -> None:
        key = self.query_one(LineTable).key
        if key in self._jobs:
            self.top.ask_stop(key)
        elif key is not None:
            self.notify(f"not started by dlaunch; scancel {key.removeprefix('slurm:')}", severity="warning")

    def command(self) -> list[str]:
        return ["dlaunch", "ps"]

"""The doctor beside the job: asks in the background, shows findings with their evidence, and who waits for whom."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from launcher.common.text import printable
from launcher.hosts.names import fold_numbers
from tui.commands import CommandError, run_json
from tui.headline import headline
from tui.rows import Column, Row
from tui.snapshot import Snapshot
from tui.view import Line, View, keys
from tui.widgets.table import LineTable

QUESTIONS = ("hang", "straggler", "mesh", "diagnose")
_STYLES = {"error": Style(color="#ff8c5a", bold=True), "warning": Style(color="#e69f00"), "info": Style(dim=True)}


def finding_row(number: int, finding: dict[str, Any]) -> Row:
    severity = finding.get("severity", "info")
    ranks = fold_numbers(finding.get("ranks") or ())
    cells = [severity, finding["code"], ranks, f"{finding.get('confidence', 1):.0%}", printable(finding["cause"])]
    return Row(str(number), [cell.replace("\n", " ") for cell in cells], _STYLES.get(severity, Style()))


def finding_text(finding: dict[str, Any]) -> Text:
    """Cause, fix, who waits for whom, evidence, and what was missing."""
    text = Text()
    text.append(f"{finding['code']} ", "bold").append(printable(finding["cause"]) + "\n")
    if finding.get("fix"):
        text.append("do ", "bold green").append(printable(finding["fix"]) + "\n")
    for line in waits(finding):
        text.append(f"  {line}\n", "#56b4e9")
    for piece in finding.get("evidence") or ():
        text.append(f"  {piece['kind']} {piece['where']}: ", "dim").append(printable(piece["text"]) + "\n")
    for words in finding.get("missing") or ():
        text.append(f"  missing: {printable(words)}\n", "yellow")
    return text


def waits(finding: dict[str, Any]) -> list[str]:
    """Who waits in which call for whom, as far as a finding tells it, and how that was decided."""
    detail = finding.get("detail") or {}
    lines = []
    if "seq" in detail and "op" in detail:
        waiting = detail.get("waiting") or detail.get("members", "?")
        missing = fold_numbers(finding.get("ranks") or ()) if "waiting" in detail else ""
        call = f"{detail['op']} #{detail['seq']} of {detail.get('group', 'its group')}"
        lines.append(f"ranks {waiting} ──▶ {call} ──▶ {f'rank {missing}' if missing else 'nobody is missing'}")
    if "cycle" in detail:
        lines.append(" ──▶ ".join(str(rank) for rank in [*detail["cycle"], *detail["cycle"][:1]]))
    return [printable(line) for line in [*lines, *map(str, detail.get("decisions") or ())]]


class DoctorScreen(View):
    """Runs `ddoctor` in a process of its own: no frame waits for it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "ask('')", "ask again"),
        Binding("H", "ask('hang')", "hang"),
        Binding("S", "ask('straggler')", "straggler"),
        Binding("M", "ask('mesh')", "mesh"),
        Binding("A", "ask('diagnose')", "everything"),
        Binding("y", "copy", "copy"),
        Binding("escape,b", "app.leave", "back"),
    ]
    KEYS = ("d again", "H hang", "S straggler", "M mesh", "A all", "⏎ rank", "y copy", "b back", "? help")
    HELP = "The first finding is the root cause. ⏎ opens the rank that a finding names."

    def __init__(self, question: str = "hang") -> None:
        super().__init__()
        self._question = question
        self._findings: Sequence[dict[str, Any]] = ()
        self._began = 0.0
        self._status = ""

    def compose(self) -> ComposeResult:
        yield Line(id="head")
        yield Line(id="legend")
        yield LineTable(
            Column("SEVERITY", 8),
            Column("CODE", 26),
            Column("RANKS", 14),
            Column("SURE", 5, right=True),
            Column("CAUSE"),
            id="findings",
        )
        with VerticalScroll(id="detail"):
            yield Static(id="finding")
        yield Line(keys(*self.KEYS), id="keys")

    def on_mount(self) -> None:
        self.query_one(LineTable).focus()
        self.set_interval(0.5, self._tick)
        self.action_ask("")

    def show(self, snapshot: Snapshot) -> None:
        self.query_one("#head", Line).set(headline(snapshot, self.top.marks))

    def action_ask(self, question: str) -> None:
        self._question = question or self._question
        self._began, self._status = time.monotonic(), ""
        self._ask()
        self._tick()

    @work(exclusive=True, group="doctor")
    async def _ask(self) -> None:
        try:
            verdict = await run_json(self.command())
        except CommandError as error:
            self._set((), printable(str(error)))
            return
        took = time.monotonic() - self._began
        self._set(verdict.get("findings", ()), f"{verdict.get('answer', 'unknown')} · {took:.1f} s")

    def _set(self, findings: Sequence[dict[str, Any]], status: str) -> None:
        self._findings, self._status = findings, status
        self.query_one(LineTable).set_rows([finding_row(place, finding) for place, finding in enumerate(findings)])
        self._tick()

    def _tick(self) -> None:
        """The line of progress and the finding under the cursor."""
        waiting = f"looking for {time.monotonic() - self._began:.0f} s…"
        self.query_one("#legend", Line).set(f" {self._question}: {self._status or waiting}")
        key = self.query_one(LineTable).key
        text = finding_text(self._findings[int(key)]) if key is not None else Text(self._status)
        self.query_one("#finding", Static).update(text)

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        ranks = self._findings[int(event.key)].get("ranks") or ()
        if ranks:
            self.top.open_rank(int(ranks[0]))

    def on_key(self) -> None:
        self.call_after_refresh(self._tick)

    def action_copy(self) -> None:
        text = "\n".join(finding_text(finding).plain for finding in self._findings)
        self.app.copy_to_clipboard(text)
        self.notify("findings copied")

    def command(self) -> list[str]:
        return ["ddoctor", self._question, self.top.target]

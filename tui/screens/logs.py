"""The ranks' logs: merged, folded, followed; filtered in place, selected, copied, saved."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.worker import Worker, get_current_worker

from launcher.errors import DlaunchError
from launcher.hosts.names import fold_numbers
from tui.feed.logs import MOST_RANKS, Labelled, LogSource
from tui.headline import headline
from tui.snapshot import Snapshot
from tui.view import Line, View, keys
from tui.widgets.log import LogView

_PERIOD_S = 0.4
_RETRY_S = 3.0


class LogPane(LogView):
    """A log view that reads a job's logs by itself, in a thread."""

    def follow(self, ranks: Sequence[int]) -> None:
        """Read the logs of `ranks` from now on."""
        self.clear()
        self._read(ranks)

    @work(thread=True, exclusive=True, group="logs")
    def _read(self, ranks: Sequence[int]) -> None:
        from tui.app import TopApp

        worker, app = get_current_worker(), self.app
        assert isinstance(app, TopApp)
        while not worker.is_cancelled:
            try:
                source = app.open_logs(ranks)
                self._copy(source, worker)
            except (DlaunchError, OSError) as error:
                self._hand_over([("", f"— {error}")], worker)
                _rest(worker, _RETRY_S)

    def _copy(self, source: LogSource, worker: Worker[None]) -> None:
        try:
            while not worker.is_cancelled:
                lines = source.read()
                if lines:
                    self._hand_over(lines, worker)
                else:
                    _rest(worker, _PERIOD_S)
        finally:
            source.close()

    def _hand_over(self, lines: list[Labelled], worker: Worker[None]) -> None:
        if not worker.is_cancelled:
            self.app.call_from_thread(self.add, lines)


def _rest(worker: Worker[None], seconds: float) -> None:
    """Wait, but not after the screen has gone."""
    until = time.monotonic() + seconds
    while not worker.is_cancelled and time.monotonic() < until:
        time.sleep(0.05)


class LogsScreen(View):
    """Lines of up to 64 ranks, each behind its rank; equal lines once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter"),
        Binding("f", "follow", "follow the end"),
        Binding("y", "copy", "copy what is shown"),
        Binding("w", "save", "save what is shown"),
        Binding("o", "ranks", "other ranks"),
        Binding("escape,b", "app.leave", "back"),
    ]
    KEYS = ("/ filter", "f follow", "o ranks", "y copy", "w save", "hjkl move", "b back", "? help")
    HELP = "/ takes a regular expression. Select with the mouse, ctrl+c copies the selection, y all that is shown."

    def __init__(self, ranks: Sequence[int]) -> None:
        super().__init__()
        self._ranks = list(ranks)[:MOST_RANKS]

    def compose(self) -> ComposeResult:
        yield Line(id="head")
        yield Line(id="legend")
        yield LogPane(id="log")
        yield Line(keys(*self.KEYS), id="keys")

    def on_mount(self) -> None:
        pane = self.query_one(LogPane)
        pane.focus()
        pane.follow(self._ranks)
        self._show_legend()

    def show(self, snapshot: Snapshot) -> None:
        self.query_one("#head", Line).set(headline(snapshot, self.top.marks))
        self._show_legend()

    def _show_legend(self) -> None:
        pane = self.query_one(LogPane)
        follows = "following" if pane.follows else "stopped (f follows)"
        pattern = f" · /{pane.filter.pattern}/ {len(pane.lines_shown)} lines" if pane.filter else ""
        self.query_one("#legend", Line).set(f" logs of ranks {fold_numbers(self._ranks)} · {follows}{pattern}")

    def action_filter(self) -> None:
        current = self.query_one(LogPane).filter
        self.top.ask_text("show lines in which this is found", current.pattern if current else "", self._set_filter)

    def _set_filter(self, text: str) -> None:
        try:
            pattern = re.compile(text) if text else None
        except re.error as error:
            self.notify(f"no regular expression: {error}", markup=False, severity="warning")
            return
        self.query_one(LogPane).set_filter(pattern)
        self._show_legend()

    def action_ranks(self) -> None:
        self.top.ask_text("ranks, e.g. 0-7,12", fold_numbers(self._ranks), self._set_ranks)

    def _set_ranks(self, text: str) -> None:
        from launcher.jobs.output import parse_ranks

        try:
            self._ranks = sorted(parse_ranks(text))[:MOST_RANKS]
        except DlaunchError as error:
            self.notify(str(error), markup=False, severity="warning")
            return
        self.query_one(LogPane).follow(self._ranks)
        self._show_legend()

    def action_follow(self) -> None:
        self.query_one(LogPane).action_follow()

    def action_copy(self) -> None:
        lines = self.query_one(LogPane).lines_shown
        self.app.copy_to_clipboard("\n".join(lines))
        self.notify(f"{len(lines)} lines copied", markup=False)

    def action_save(self) -> None:
        name = f"{self.top.snapshot.job.job if self.top.snapshot else 'job'}.log.txt"
        self.top.ask_text("save what is shown to", name, self._save)

    def _save(self, name: str) -> None:
        lines = self.query_one(LogPane).lines_shown
        try:
            Path(name).expanduser().write_text("\n".join(lines) + "\n")
        except OSError as error:
            self.notify(f"not saved: {error}", markup=False, severity="error")
            return
        self.notify(f"{len(lines)} lines saved to {name}", markup=False)

    def command(self) -> list[str]:
        job = self.top.snapshot.job.job if self.top.snapshot else "last"
        return ["dlaunch", "logs", job, "--rank", fold_numbers(self._ranks), "--follow"]

"""`dlaunch top`: owns the feed, hands each new snapshot to the screen, and runs what keys ask for."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.reactive import var
from textual.screen import Screen

from launcher.common.text import printable
from launcher.errors import DlaunchError, InputError
from launcher.jobs.store import StoredJob
from tui.alarms import AlarmWatch
from tui.commands import CommandError, run_json
from tui.feed.base import FeedThread
from tui.feed.live import LiveFeed
from tui.feed.logs import LogSource
from tui.feed.source import Source, of_job
from tui.screens.dialogs import AskText, Confirm, Reader
from tui.screens.job import JobScreen
from tui.screens.jobs import JobsScreen
from tui.snapshot import JobInfo, Snapshot
from tui.view import View

FRAME_S = 0.25  # at most; a feed has news twice a second
_SHORT = 28  # lines; the plots of the job go below that
_SEEK_S = 10.0
_LAST_WORDS_S = 3.0  # after a signal


@dataclass(frozen=True)
class TopOptions:
    """What the command line says. `patience` is in median step times."""

    readonly: bool = False
    colourless: bool = False
    patience: float = 5.0
    on_hang: str = ""
    record: Path | None = None


class TopApp(App[None]):
    """Without a source it begins with all jobs."""

    TITLE = "dlaunch top"
    CSS_PATH = "top.tcss"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit", priority=False),
        Binding("question_mark,f1", "help", "help"),
        Binding("colon", "command_palette", "all commands"),
        Binding("space", "pause", "pause the view"),
        Binding("c", "command", "the shell command that does this"),
        Binding("r", "record", "record"),
        Binding("T", "theme", "theme"),
        Binding("less_than_sign,comma", "seek(-1)", "back in a recording"),
        Binding("greater_than_sign,full_stop", "seek(1)", "on in a recording"),
    ]

    snapshot: var[Snapshot | None] = var(None, always_update=True)  # a reactive would paint the whole screen
    paused = var(False)

    def __init__(self, open_source: Callable[[], Source] | None = None, options: TopOptions | None = None) -> None:
        super().__init__()
        self.options = options or TopOptions()
        self.source: Source | None = None
        self.failure: DlaunchError | None = None  # why the source could not be opened
        self._open_source = open_source
        self.feed: FeedThread | None = None
        self._told_error = ""

    def on_mount(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):  # else the terminal would stay as we made it
            with suppress(NotImplementedError, RuntimeError, ValueError):
                asyncio.get_running_loop().add_signal_handler(number, self._end, number)
        self.push_screen(JobsScreen())
        if self._open_source is not None:
            self.push_screen(JobScreen())
            self.call_after_refresh(self._open, self._open_source)
        self.set_interval(FRAME_S, self._tick)

    def _end(self, number: signal.Signals) -> None:
        """Leave in order; where the terminal has gone, Textual's threads would wait for it for ever."""
        deadline = threading.Timer(_LAST_WORDS_S, os._exit, (128 + number,))
        deadline.daemon = True
        deadline.start()
        self.exit()

    def on_unmount(self) -> None:
        self._close_feed()

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.height < _SHORT, "short")

    # --- the feed ----------------------------------------------------------------------------------------------

    @work(thread=True, exclusive=True, group="open")
    def _open(self, open_source: Callable[[], Source]) -> None:
        """Reading the record of thousands of ranks takes longer than the first picture may."""
        try:
            source = open_source()
        except DlaunchError as error:
            self.failure = error
            self.call_from_thread(self.exit)
            return
        self.call_from_thread(self._start, source)

    def open_job(self, job: StoredJob) -> None:
        self.push_screen(JobScreen())
        self._start(of_job(job))

    def _start(self, source: Source) -> None:
        self._close_feed()
        self.source, self.snapshot = source, None
        watch = AlarmWatch(self.options.patience, "" if self.options.readonly else self.options.on_hang)
        self.feed = FeedThread(source.feed, watch)
        self.feed.start()
        if self.options.record is not None:
            self._record(self.options.record)
        self.set_timer(0.05, self._tick)

    def _close_feed(self) -> None:
        if self.feed is not None:
            self.feed.close()
            self.feed = None

    def _tick(self) -> None:
        if self.feed is None:
            return
        error = str(self.feed.error or "")
        if error and error != self._told_error:
            self.notify(printable(error), markup=False, severity="error", title="the feed")
        self._told_error = error
        if not self.paused and self.feed.latest is not None and self.feed.latest is not self.snapshot:
            self.snapshot = self.feed.latest

    def watch_snapshot(self, snapshot: Snapshot | None) -> None:
        if snapshot is not None and self.is_running and isinstance(self.screen, View):
            self.screen.present(snapshot)

    @property
    def marks(self) -> str:
        """What the head line adds: paused, recording, read-only, what the feed costs here."""
        live = self._recordable()
        recording = live is not None and live.recorder is not None
        cost = f"feed {100 * self.feed.cpu:.0f} %" if self.feed is not None and self.feed.cpu >= 0.05 else ""
        words = ("paused" if self.paused else "", "● rec" if recording else "", cost)
        return " · ".join(filter(None, (*words, "read-only" if self.options.readonly else "")))

    @property
    def target(self) -> str:
        """The job or path that other commands are asked about."""
        return self.source.target if self.source is not None else "last"

    def open_logs(self, ranks: Sequence[int]) -> LogSource:
        if self.source is None:
            raise InputError("no job is open", where="JOB")
        return self.source.open_logs(ranks)

    def topology(self, job: JobInfo, hosts: Sequence[str]) -> list[str]:
        """What the hosts' hardware is; in words where nobody can be asked."""
        if self.source is None or not self.source.live:
            return ["a recording or a directory has no hosts to ask; dlaunch topo FILE shows saved topologies"]
        from launcher.jobs.store import find_job
        from tui.hardware import topology_lines

        return topology_lines(find_job(self.source.target).record, job, hosts)

    # --- screens -----------------------------------------------------------------------------------------------

    def action_open(self, name: str) -> None:
        """Go to one of the job's other screens, for the ranks under the cursor."""
        if self.snapshot is None:
            return
        ranks: list[int] = getattr(self.screen, "selected", [])
        self.push_screen(self._make(name, ranks))

    def _make(self, name: str, ranks: list[int]) -> View:
        from tui.screens.doctor import DoctorScreen
        from tui.screens.logs import LogsScreen
        from tui.screens.stacks import StacksScreen
        from tui.screens.topology import TopologyScreen

        assert self.snapshot is not None
        makers: dict[str, Callable[[], View]] = {
            "doctor": DoctorScreen,
            "stacks": StacksScreen,
            "topology": TopologyScreen,
            "logs": lambda: LogsScreen(ranks if len(ranks) > 1 else range(self.snapshot.world_size)),  # type: ignore[union-attr]
        }
        return makers[name]()

    def open_rank(self, rank: int) -> None:
        from tui.screens.rank import RankScreen

        if self.snapshot is not None and rank < self.snapshot.world_size:
            self.push_screen(RankScreen(rank))

    def action_leave(self) -> None:
        if len(self.screen_stack) > 2:
            self.pop_screen()

    def ask_text(self, question: str, value: str, then: Callable[[str], None]) -> None:
        self.push_screen(AskText(question, value), lambda answer: then(answer) if answer is not None else None)

    # --- what keys do ------------------------------------------------------------------------------------------

    def action_help(self) -> None:
        screen = self.screen
        if not isinstance(screen, View):
            return
        text = Text(f"{screen.HELP}\n\n")
        for binding in [*screen.BINDINGS, *self.BINDINGS, *getattr(screen.focused, "BINDINGS", ())]:
            if isinstance(binding, Binding):
                text.append(f"{binding.key.replace(',', ', '):>24}", "bold").append(f"  {binding.description}\n")
        self.push_screen(Reader("keys", text))

    def action_pause(self) -> None:
        self.paused = not self.paused
        if self.snapshot is not None and not self.paused:
            self._tick()
        self.notify("the view stands still, the feed goes on" if self.paused else "live again", timeout=2)

    def action_command(self) -> None:
        if isinstance(self.screen, View):
            command = shlex.join(self.screen.command())
            self.copy_to_clipboard(command)
            self.push_screen(Reader("the same in a shell (copied)", command))

    def action_theme(self) -> None:
        names = sorted(self.available_themes)
        self.theme = names[(names.index(self.theme) + 1) % len(names)]
        self.notify(self.theme, timeout=1)

    def action_seek(self, direction: int) -> None:
        if self.feed is not None and self.snapshot is not None and self.snapshot.position is not None:
            self.feed.seek(direction * _SEEK_S)
            self.set_timer(0.1, self._tick)

    def action_record(self) -> None:
        feed = self._recordable()
        if feed is None:
            self.notify("only a live job can be recorded", severity="warning")
        elif feed.recorder is not None:
            feed.stop_recording()
            self.notify("recording ended")
        elif self.snapshot is not None:
            self._record(Path(f"{self.snapshot.job.job}.top.gz"))

    def _recordable(self) -> LiveFeed | None:
        return self.source.feed if self.source is not None and isinstance(self.source.feed, LiveFeed) else None

    def _record(self, path: Path) -> None:
        feed = self._recordable()
        if feed is None:
            return
        try:
            feed.record(path)
        except OSError as error:
            self.notify(f"cannot record: {error}", markup=False, severity="error")
            return
        self.notify(f"recording to {path}; dlaunch top --replay {path}", markup=False)

    def ask_stop(self, job: str = "") -> None:
        """Stop a job after a yes."""
        name = job or (self.source.target if self.source is not None and self.source.live else "")
        if not name or self.options.readonly:
            self.notify("read-only" if self.options.readonly else "nothing here can be stopped", severity="warning")
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._stop(name))

        self.push_screen(Confirm(f"Stop {name} on all its hosts? (dlaunch stop {name})"), answered)

    async def _stop(self, job: str) -> None:
        try:
            answer = await run_json(["dlaunch", "stop", job])
        except CommandError as error:
            self.notify(printable(str(error)), markup=False, severity="error")
            return
        self.notify(f"{job}: {answer.get('state', 'stopped')}", markup=False)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Everything that a key does is in the palette too."""
        yield from super().get_system_commands(screen)
        for owner in (screen, self):
            for binding in owner.BINDINGS:
                if isinstance(binding, Binding):
                    yield SystemCommand(
                        binding.description,
                        f"key {binding.key}",
                        lambda owner=owner, action=binding.action: owner.call_later(owner.run_action, action),
                    )

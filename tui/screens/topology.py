"""The hardware of the job's hosts, with the ranks that sit on it and the link that limits each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from tui.screens.text import TextScreen
from tui.snapshot import JobInfo

_MOST_HOSTS = 4


class TopologyScreen(TextScreen):
    """Asks the first hosts of the job for their hardware."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("t", "ask", "look again"), *TextScreen.BINDINGS]
    KEYS = ("t again", "hjkl move", "y copy", "b back", "? help")
    HELP = "⚠ marks, for each mesh axis, the link that limits its slowest group."

    def action_ask(self) -> None:
        snapshot = self.top.snapshot
        if snapshot is not None:
            self.say(f"asking {', '.join(snapshot.job.hosts[:_MOST_HOSTS])}…")
            self._look(snapshot.job)

    @work(thread=True, exclusive=True, group="topology")
    def _look(self, job: JobInfo) -> None:
        lines = self.top.topology(job, job.hosts[:_MOST_HOSTS])
        self.app.call_from_thread(self._set, job, lines)

    def _set(self, job: JobInfo, lines: Sequence[str]) -> None:
        self.put(lines)
        more = len(job.hosts) - _MOST_HOSTS
        self.say(f"topology · {more} more hosts: dlaunch topo HOST" if more > 0 else "topology")

    def command(self) -> list[str]:
        hosts = self.top.snapshot.job.hosts if self.top.snapshot else ()
        return ["dlaunch", "topo", *hosts[:1]]

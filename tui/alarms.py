"""What is wrong at a glance: pure rules over a snapshot, and the watch that remembers since when."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from doctor.text import name_ranks
from launcher.hosts.names import fold
from tui.snapshot import STATE_CODES, Alarm, AlarmKind, Snapshot

LEAST_PATIENCE_S = 5.0  # short steps do not make it nervous
_PATIENCE_WITHOUT_STEPS_S = 60.0
_MOST_NAMED = 4096
_MOST_PLACES = 3
_ACTIVE = ("running", "starting", "unsupervised")


def find_alarms(snapshot: Snapshot, factor: float) -> Iterator[tuple[AlarmKind, list[int], str]]:
    """Kind, ranks and words of everything that a person should look at; `factor` counts median steps of patience."""
    if snapshot.job.state not in _ACTIVE or not snapshot.world_size:
        return
    yield from _lost(snapshot)
    stopped = _ranks(snapshot.state == STATE_CODES["stopped"])
    if stopped:
        yield "stopped", stopped, f"{name_ranks(stopped)} stopped (SIGSTOP or a debugger)"
    gone = _ranks(snapshot.state == STATE_CODES["gone"])
    if gone:
        yield "gone", gone, f"{name_ranks(gone)} ended while the job runs"
    yield from _late(snapshot, factor)


def _lost(snapshot: Snapshot) -> Iterator[tuple[AlarmKind, list[int], str]]:
    """One alarm for each reason: a switch that fails takes hundreds of hosts with it."""
    nodes_of: dict[str, list[int]] = {}
    for node, reason in snapshot.nodes.lost.items():
        nodes_of.setdefault(reason, []).append(node)
    for reason, nodes in nodes_of.items():
        verb = "does" if len(nodes) == 1 else "do"
        hosts = tuple(snapshot.job.hosts[node] for node in nodes)
        yield "lost", snapshot.job.ranks_on(*nodes), f"{_folded(hosts)} {verb} not answer: {reason}"


@lru_cache(maxsize=8)  # the same hosts with every frame
def _folded(hosts: tuple[str, ...]) -> str:
    return fold(hosts)


def _late(snapshot: Snapshot, factor: float) -> Iterator[tuple[AlarmKind, list[int], str]]:
    known = ~np.isnan(snapshot.step)
    ages = snapshot.time - snapshot.progress_time
    if not known.any() or np.isnan(ages[known]).all():
        return
    patience = _patience(snapshot, factor)
    front, youngest = float(snapshot.step[known].max()), float(np.nanmin(ages[known]))
    behind = known & (snapshot.step < front - 1) & (ages > patience)
    if youngest > patience:
        slowest = _ranks(known & (snapshot.step < front))
        who = f", {name_ranks(slowest)} behind at step {np.nanmin(snapshot.step):.0f}" if slowest else ""
        told = f"no step for {youngest:.0f} s (median step {_median(snapshot):.3g} s){who}{_standing(snapshot)}"
        yield "no_progress", slowest, told
    elif behind.any():
        ranks = _ranks(behind)
        yield (
            "behind",
            ranks,
            f"{name_ranks(ranks)} behind step {front:.0f} by {front - snapshot.step[behind].min():.0f}",
        )


def _standing(snapshot: Snapshot) -> str:
    """In which collectives the ranks are, the fewest first: those that are elsewhere than the rest."""
    ranks_in: dict[str, list[int]] = {}
    for rank, collective in sorted(snapshot.collectives.items()):
        ranks_in.setdefault(collective, []).append(rank)
    groups = sorted(ranks_in.items(), key=lambda item: len(item[1]))
    words = [f"; {name_ranks(ranks)} in {collective}" for collective, ranks in groups[:_MOST_PLACES]]
    return "".join(words) + (f"; {len(groups) - _MOST_PLACES} other places" if len(groups) > _MOST_PLACES else "")


def _median(snapshot: Snapshot) -> float:
    known = snapshot.step_s[~np.isnan(snapshot.step_s)]
    return float(np.median(known)) if len(known) else float("nan")


def _patience(snapshot: Snapshot, factor: float) -> float:
    median = _median(snapshot)
    return max(LEAST_PATIENCE_S, factor * median) if median == median else _PATIENCE_WITHOUT_STEPS_S


def _ranks(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> list[int]:
    return [int(rank) for rank in np.flatnonzero(mask)]


class AlarmWatch:
    """Adds the alarms to each snapshot and starts `command` once when alarms begin."""

    def __init__(
        self, factor: float, command: str = "", run: Callable[[str, Mapping[str, str]], None] | None = None
    ) -> None:
        self.factor = factor
        self.command = command
        self._run = run or run_command
        self._since: dict[AlarmKind, float] = {}
        self._quiet = True

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        found = list(find_alarms(snapshot, self.factor))
        self._since = {kind: self._since.get(kind, snapshot.time) for kind, _, _ in found}
        alarms = tuple(Alarm(kind, ranks, text, self._since[kind]) for kind, ranks, text in found)
        if alarms and self._quiet and self.command:
            self._run(self.command, _environment(snapshot, alarms))
        self._quiet = not alarms
        return replace(snapshot, alarms=alarms)


def _environment(snapshot: Snapshot, alarms: tuple[Alarm, ...]) -> dict[str, str]:
    ranks = sorted({rank for alarm in alarms for rank in alarm.ranks})[:_MOST_NAMED]
    return {
        "DLAUNCH_JOB": snapshot.job.job,
        "DLAUNCH_ALARM": alarms[0].kind,
        "DLAUNCH_ALARM_RANKS": ",".join(map(str, ranks)),
        "DLAUNCH_ALARM_TEXT": "; ".join(alarm.text for alarm in alarms),
    }


def run_command(command: str, environment: Mapping[str, str]) -> None:
    """Start the user's shell command beside us; its output is his to redirect."""
    process = subprocess.Popen(
        command,
        shell=True,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=process.wait, name="on-hang", daemon=True).start()

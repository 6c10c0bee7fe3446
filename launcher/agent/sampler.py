"""The sampler: looks at a node's ranks once a second and appends what it saw to sample.jsonl.

It must cost the node less than one percent of a core, so it keeps handles to the processes, reads only what is new in
files and asks the device library directly. Its own cost is part of every sample.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from launcher.agent.nvml import Devices, DeviceUse
from launcher.agent.rank_progress import RankProgress
from launcher.agent.standing import Standing
from launcher.common.paths import JobPaths, make_private
from launcher.common.progress import Progress
from launcher.common.samples import GONE, LOG_BYTES, STARTING, NodeSample, RankSample, encode


class NodeSampler:
    """Samples of one node's ranks of one attempt; `devices` are UUIDs in the order of `ranks`, empty on CPU."""

    def __init__(
        self,
        paths: JobPaths,
        node_rank: int,
        host: str,
        attempt: int,
        ranks: Sequence[int],
        devices: Sequence[str] = (),
    ) -> None:
        self._file = paths.samples(node_rank)
        self._node_rank, self._host, self._attempt = node_rank, host, attempt
        self._progress = {rank: RankProgress(paths, rank, attempt) for rank in ranks}
        self._standing = {rank: Standing(paths.dump(rank, attempt)) for rank in ranks}
        self._processes: dict[int, psutil.Process] = {}
        self._devices = Devices(devices)
        self._network = _network_bytes()
        self._clocks = (time.monotonic(), time.thread_time())

    def sample(self, pids: Mapping[int, int]) -> NodeSample:
        """How the node stands now; `pids` maps ranks to processes, for the ranks that have one."""
        began = time.thread_time()
        uses = self._devices.use()
        ranks = [
            self._rank(rank, pids.get(rank), uses[place] if place < len(uses) else DeviceUse())
            for place, rank in enumerate(self._progress)
        ]
        elapsed = self._elapsed(began)
        sent, received = self._traffic(elapsed)
        memory = psutil.virtual_memory()
        return NodeSample(
            time=time.time(),
            node_rank=self._node_rank,
            host=self._host,
            attempt=self._attempt,
            load=os.getloadavg()[0],
            memory=memory.total - memory.available,
            memory_total=memory.total,
            sent=sent,
            received=received,
            cost=round((time.thread_time() - began) / elapsed, 5),
            ranks=ranks,
        )

    def write(self, pids: Mapping[int, int]) -> NodeSample:
        """Append a sample and return it. A disk that is full must not end the agent."""
        sample = self.sample(pids)
        line = encode(sample)
        with suppress(OSError):
            make_private(self._file.parent)
            if self._file.exists() and self._file.stat().st_size + len(line) > LOG_BYTES:
                _forget_older_half(self._file)
            with self._file.open("ab") as file:
                file.write(line)
        return sample

    def devices_in_use(self) -> Mapping[int, frozenset[str]]:
        """Process -> UUIDs of the devices on which the driver sees it work, empty where the driver does not tell."""
        return self._devices.users()

    def _elapsed(self, began: float) -> float:
        """Seconds since the last sample."""
        now = time.monotonic()
        elapsed = max(now - self._clocks[0], 1e-3)
        self._clocks = (now, began)
        return elapsed

    def _traffic(self, elapsed: float) -> tuple[float, float]:
        now = _network_bytes()
        before, self._network = self._network, now
        return (now[0] - before[0]) / elapsed, (now[1] - before[1]) / elapsed

    def _rank(self, rank: int, pid: int | None, use: DeviceUse) -> RankSample:
        source = self._progress[rank]
        progress = source.look() or Progress()
        state, cpu, rss = self._process(pid)
        return RankSample(
            rank=rank,
            pid=pid,
            state=state,
            cpu=cpu,
            rss=rss,
            step=progress.step,
            total=progress.total,
            loss=progress.loss,
            step_s=progress.step_s,
            data_s=progress.data_s,
            tokens_per_s=progress.tokens_per_s,
            progress_time=progress.time,
            log_bytes=source.log_bytes,
            device_util=use.util,
            device_memory=use.memory,
            device_memory_total=use.memory_total,
            temperature=use.temperature,
            collective=self._standing[rank].look(progress, time.time()) if pid is not None else None,
        )

    def _process(self, pid: int | None) -> tuple[str, float | None, int | None]:
        """State, cores in use and resident bytes of a rank's process."""
        if pid is None:
            return STARTING, None, None
        try:
            process = self._processes.get(pid) or self._processes.setdefault(pid, psutil.Process(pid))
            with process.oneshot():
                state = process.status()
                cpu = process.cpu_percent() / 100
                rss = process.memory_info().rss
        except psutil.Error:
            return GONE, None, None
        return (GONE if state in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD) else str(state)), cpu, rss


def _network_bytes() -> tuple[int, int]:
    """Bytes sent and received so far on all interfaces but loopback."""
    counters = [count for name, count in psutil.net_io_counters(pernic=True).items() if name != "lo"]
    return sum(count.bytes_sent for count in counters), sum(count.bytes_recv for count in counters)


def _forget_older_half(path: Path) -> None:
    data = path.read_bytes()
    draft = path.with_suffix(".new")
    draft.write_bytes(data[data.find(b"\n", len(data) // 2) + 1 :])
    draft.replace(path)

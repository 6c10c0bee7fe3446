"""Makes flight recorder dumps as torch writes them, for tests and measurements: a program per rank, played out."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

START_NS = 1_795_979_952_000_000_000
STEP_NS = 10_000_000
WORLD = ("0", "default_pg")


@dataclass(frozen=True)
class Op:
    """One call of a rank's program. `group` is (name, description)."""

    group: tuple[str, str] = WORLD
    name: str = "all_reduce"
    sizes: Sequence[Sequence[int]] = ((16,),)
    dtype: str = "Float"
    peer: int | None = None  # of send and recv, as rank in the group
    line: int = 10
    thread: str = "python"
    late_ns: int = 0


@cache
def frame(name: str, file: str, line: int) -> dict[str, Any]:
    """One dict for each place: torch shares them between entries too, by the pickle's memo."""
    return {"name": name, "filename": file, "line": line}


def _stack(op: Op) -> list[tuple[str, str, int]]:
    layers = [("forward", f"/env/torch/nn/modules/module{depth}.py", 1500 + depth) for depth in range(8)]
    return [
        (op.name, "/env/torch/distributed/distributed_c10d.py", 3245),
        *layers,
        ("step", "/jobs/train.py", op.line),
        ("<module>", "/jobs/train.py", 99),
    ]


@dataclass
class Recorder:
    """The recorder of one rank: `run` plays calls that end, `wait` one that does not."""

    rank: int
    members: Mapping[tuple[str, str], Sequence[int]]
    library: str = "nccl"
    version: str = "2.10"
    buffer: int = 2000
    entries: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[tuple[str, bool], int] = field(default_factory=dict)
    status: dict[int, dict[str, int]] = field(default_factory=dict)
    made: int = 0

    def run(self, *ops: Op) -> Recorder:
        for op in ops:
            self._add(op, "completed")
        return self

    def wait(self, *ops: Op, state: str = "started") -> Recorder:
        for op in ops:
            self._add(op, state)
        return self

    def _add(self, op: Op, state: str) -> None:
        point = op.peer is not None
        key = (op.group[0], point)
        self.counts[key] = self.counts.get(key, 0) + 1
        pg_id = list(self.members).index(op.group)
        done = state == "completed"
        created = START_NS + STEP_NS * self.made + op.late_ns
        gloo = self.library == "gloo"
        name = op.name if op.peer is None else self._peer_name(op)
        self.entries.append(
            {
                "frames": [frame(*place) for place in _stack(op)],
                "record_id": self.made,
                "pg_id": pg_id,
                "process_group": op.group,
                "thread_name": op.thread,
                "thread_id": str(hash(op.thread) % 10**12),
                "collective_seq_id": self.counts.get((op.group[0], False), 0),
                "p2p_seq_id": self.counts.get((op.group[0], True), 0),
                "op_id": self.made + 1,
                "profiling_name": f"{self.library}:{name}",
                "time_created_ns": created,
                "input_sizes": [list(one) for one in op.sizes],
                "input_dtypes": [op.dtype],
                "output_sizes": [list(one) for one in op.sizes],
                "output_dtypes": [op.dtype],
                "state": "scheduled" if gloo else state,
                "time_discovered_started_ns": None if gloo or state == "scheduled" else created + 1000,
                "time_discovered_completed_ns": created + STEP_NS // 2 if done and not gloo else None,
                "retired": done,
                "timeout_ms": 1_800_000,
                "is_p2p": point,
            }
        )
        self.made += 1
        self.entries = self.entries[-self.buffer :]
        if not point:
            self._count(pg_id, self.counts[key], state)

    def _count(self, pg_id: int, seq: int, state: str) -> None:
        status = self.status.setdefault(
            pg_id,
            dict.fromkeys(("last_enqueued_collective", "last_started_collective", "last_completed_collective"), -1),
        )
        status["last_enqueued_collective"] = seq
        if state != "scheduled" and self.library != "gloo":
            status["last_started_collective"] = seq
        if state == "completed":
            status["last_completed_collective"] = seq

    def _peer_name(self, op: Op) -> str:
        own = list(self.members[op.group]).index(self.rank)
        return f"{op.name} {own}{'->' if op.name == 'send' else '<-'}{op.peer}"

    def dump(self) -> dict[str, Any]:
        gloo = self.library == "gloo"
        config = {
            name: {"name": name, "desc": desc, "ranks": str(list(ranks))}
            for (name, desc), ranks in self.members.items()
        }
        return {
            "version": self.version,
            "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}} if gloo else config,
            "comm_lib_version": "" if gloo else "2.27.3",
            "pg_status": {str(pg_id): status for pg_id, status in self.status.items()},
            "entries": self.entries,
        }

    def write(self, folder: Path, name: str = "nccl_trace_rank_{}", as_json: bool = False) -> Path:
        path = folder / name.format(self.rank)
        path.write_bytes(json.dumps(self.dump()).encode() if as_json else pickle.dumps(self.dump(), 2))
        return path


def recorders(world: int, library: str = "nccl", **settings: Any) -> list[Recorder]:
    """One recorder a rank with the world group alone."""
    return [Recorder(rank, {WORLD: range(world)}, library, **settings) for rank in range(world)]


def grid(world: int, tp: int, library: str = "nccl", **settings: Any) -> list[Recorder]:
    """Recorders of a dp × tp mesh: the world, a tp group of neighbours, a dp group of equals."""
    made = []
    for rank in range(world):
        row, column = divmod(rank, tp)
        members = {
            WORLD: range(world),
            (str(1 + row), "tp"): range(row * tp, row * tp + tp),
            (str(1 + world // tp + column), "dp"): range(column, world, tp),
        }
        made.append(Recorder(rank, members, library, **settings))
    return made


def group(recorder: Recorder, desc: str) -> tuple[str, str]:
    """The rank's group with this description."""
    return next(name for name in recorder.members if name[1] == desc)


def write_all(ranks: Iterable[Recorder], folder: Path, **settings: Any) -> Path:
    for one in ranks:
        one.write(folder, **settings)
    return folder

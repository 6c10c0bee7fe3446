"""All ranks' collectives as a Perfetto trace: a process track for each rank, with its coordinate, a track per group.

Written in protobuf's wire format by hand (field numbers of perfetto/trace/trace_packet.proto and track_event.proto), so
that no library is needed; the tests decode it with Perfetto's own protos.
"""

from __future__ import annotations

from collections.abc import Iterator

from doctor.evidence.columns import Columns
from doctor.evidence.rank_table import DONE, P2P, RankTable
from doctor.rules.fleet import Fleet

OPEN_NS = 1_000_000  # drawn length of a call that no later call of its group bounds
SEQUENCE = 1
SLICE_BEGIN, SLICE_END = 1, 2
INCREMENTAL_STATE_CLEARED = 1


def trace(fleet: Fleet) -> bytes:
    """The whole trace. Times are those of the ranks' own clocks."""
    return b"".join(_field(1, packet) for packet in packets(fleet))


def packets(fleet: Fleet) -> Iterator[bytes]:
    """Track descriptors, then the slices of all ranks."""
    for rank, table in fleet.tables.items():
        yield _packet(_field(60, _process(rank, _label(rank, fleet))))
        for index, group in enumerate(table.groups):
            name = f"{group.desc or group.name} ({len(group.members)})" if group.members else group.desc or group.name
            yield _packet(_field(60, _number(1, _track(rank, index)) + _text(2, name) + _number(5, _root(rank))))
        yield from _slices(rank, table)


def _slices(rank: int, table: RankTable) -> Iterator[bytes]:
    columns = table.calls.unpack()
    ends = _ends(columns)
    for index, begun in enumerate(columns.created):
        track = _track(rank, columns.group[index])
        yield _packet(_number(8, begun) + _field(11, _begin(track, table, columns, index)))
        yield _packet(_number(8, ends[index]) + _field(11, _number(9, SLICE_END) + _number(11, track)))


def _ends(columns: Columns) -> list[int]:
    """When each call is drawn to end: at the next of its group, 1 ms later at most."""
    following: dict[int, int] = {}
    ends = [0] * len(columns.created)
    for index in range(len(ends) - 1, -1, -1):
        begun, group = columns.created[index], columns.group[index]
        ends[index] = max(begun, min(begun + OPEN_NS, following.get(group, begun + OPEN_NS)))
        following[group] = begun
    return ends


def _begin(track: int, table: RankTable, columns: Columns, index: int) -> bytes:
    signature, flags = table.signatures[columns.signature[index]], columns.flags[index]
    notes = {"seq": str(columns.seq[index]), "sizes": signature.sizes, "dtype": signature.dtype}
    notes["done"] = "yes" if flags & DONE else "no"
    category = "p2p" if flags & P2P else "collective"
    head = _number(9, SLICE_BEGIN) + _number(11, track) + _text(22, category) + _text(23, signature.op)
    return head + b"".join(_field(4, _text(10, name) + _text(6, value)) for name, value in notes.items())


def _process(rank: int, name: str) -> bytes:
    return _number(1, _root(rank)) + _text(2, name) + _field(3, _number(1, rank + 1) + _text(6, name))


def _label(rank: int, fleet: Fleet) -> str:
    where = f" on {fleet.hosts[rank]}" if rank in fleet.hosts else ""
    return " ".join(filter(None, (f"rank {rank}", fleet.coordinates.get(rank, "")))) + where


def _root(rank: int) -> int:
    return (rank + 1) << 20


def _track(rank: int, group: int) -> int:
    return _root(rank) + group + 1


def _packet(content: bytes) -> bytes:
    return content + _number(10, SEQUENCE) + _number(13, INCREMENTAL_STATE_CLEARED)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

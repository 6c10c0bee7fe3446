"""The recorded calls of a rank by column; packed they travel, and thousands of ranks fit in memory."""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

CODES = {"group": "H", "seq": "q", "signature": "H", "flags": "B", "created": "q"}
DELTA = "q"  # kept as differences: small numbers compress well
MAX_CALLS = 1 << 20


class Columns(NamedTuple):
    """Calls in the order in which the rank made them."""

    group: array[int]  # index into RankTable.groups
    seq: array[int]  # of send and recv the p2p sequence number
    signature: array[int]  # index into RankTable.signatures
    flags: array[int]
    created: array[int]  # nanoseconds since the epoch

    def pack(self) -> PackedColumns:
        return PackedColumns(len(self.seq), {name: _packed(getattr(self, name), code) for name, code in CODES.items()})


@dataclass(frozen=True)
class PackedColumns:
    """The same, each column compressed."""

    count: int
    data: Mapping[str, bytes]

    def unpack(self) -> Columns:
        return Columns(**{name: _unpacked(self.data[name], code) for name, code in CODES.items()})

    def to_json(self) -> dict[str, str]:
        return {name: base64.b64encode(data).decode() for name, data in self.data.items()}

    @classmethod
    def from_json(cls, record: Mapping[str, str], groups: int, signatures: int) -> PackedColumns:
        """Raises ValueError when columns differ in length, are too long, or point at groups that are not there."""
        data = {name: base64.b64decode(record[name]) for name in CODES}
        plain = {name: _inflated(data[name], code) for name, code in CODES.items()}
        if len({len(values) for values in plain.values()}) != 1:
            raise ValueError("the columns differ in length")
        if max(plain["group"], default=-1) >= groups or max(plain["signature"], default=-1) >= signatures:
            raise ValueError("a call refers to a group or signature that is not there")
        return cls(len(plain["seq"]), data)


def _packed(values: array[int], code: str) -> bytes:
    if code == DELTA:
        values = array(code, (now - before for before, now in zip([0, *values], values, strict=False)))
    return zlib.compress(values.tobytes(), 1)


def _unpacked(data: bytes, code: str) -> array[int]:
    values = _inflated(data, code)
    return array(code, accumulate(values)) if code == DELTA else values


def _inflated(data: bytes, code: str) -> array[int]:
    values: array[int] = array(code)
    unzip = zlib.decompressobj()
    values.frombytes(unzip.decompress(data, MAX_CALLS * values.itemsize))
    if unzip.unconsumed_tail:
        raise ValueError("more calls than a recorder holds")
    return values

"""A rank's dump as the one line of JSON that travels."""

from __future__ import annotations

import json

from doctor.evidence.flight_recorder import normalised
from doctor.evidence.tabulate import tabulate
from launcher.common.unpickle import RefusedPickleError, loads, salvage


def reduce_dump(dump: bytes, rank: int, where: str) -> bytes:
    """The reduced table of a dump, or a line that says why there is none."""
    try:
        table = tabulate(normalised(loads(dump)), rank, where)
    except RefusedPickleError:
        table = tabulate(normalised(salvage(dump)), rank, where, truncated=True)
    return json.dumps({"dlaunch_rank_table": table.to_json()}).encode()

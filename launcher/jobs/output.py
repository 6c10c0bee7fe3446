"""The ranks' output: read in bounded pieces from every host, labelled, and folded where all say the same."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from launcher.common.paths import JobPaths
from launcher.common.text import printable
from launcher.errors import InputError
from launcher.hosts.names import fold_numbers
from launcher.hosts.protocol import Host
from launcher.jobs.record import JobRecord, RankRecord

CHUNK = 1 << 20
LONGEST_LINE = 4096  # characters of one line that are shown


@dataclass
class OutputTail:
    """New complete lines of one file on a host, CHUNK bytes at a time; UTF-8 cut at a border is put together again."""

    host: Host
    path: str
    offset: int = 0
    _rest: str = ""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    def lines(self, final: bool = False) -> list[str]:
        """Up to CHUNK bytes' worth; `final` gives an unfinished last line too."""
        data = b""
        with suppress(FileNotFoundError):
            data = self.host.read(self.path, self.offset, CHUNK)
        self.offset += len(data)
        text = self._rest + self._decoder.decode(data)
        complete, _, self._rest = text.rpartition("\n")
        if len(self._rest) > CHUNK or (final and not data):
            complete, self._rest = text, ""
        return [printable(line[:LONGEST_LINE]) for line in complete.split("\n")] if complete else []


@dataclass(frozen=True)
class Selection:
    """Which ranks' output is wanted."""

    ranks: frozenset[int] | None = None
    node: int | None = None
    coordinate: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, ranks: str | None, node: int | None, coordinate: str | None) -> Selection:
        """`3,5-7` and `tp=0,pp=1`; raises InputError."""
        chosen = None if ranks is None else parse_ranks(ranks)
        axes: dict[str, int] = {}
        for part in filter(None, (coordinate or "").split(",")):
            axis, _, index = part.partition("=")
            if not index.isdigit():
                raise InputError(f"{part!r} is not AXIS=INDEX", where="--coord", help="for example --coord tp=0")
            axes[axis] = int(index)
        return cls(chosen, node, axes)

    def of(self, record: JobRecord) -> list[RankRecord]:
        """The ranks of `record` that are meant; raises InputError where there is none."""
        unknown = [axis for axis in self.coordinate if axis not in record.mesh]
        if unknown:
            raise InputError(f"no axis {unknown[0]!r}", where="--coord", help=f"the mesh has {', '.join(record.mesh)}")
        chosen = [rank for rank in record.ranks if self._wants(rank)]
        if not chosen:
            raise InputError("no rank is meant", where="--rank", help=f"the job has ranks 0-{len(record.ranks) - 1}")
        return chosen

    def _wants(self, rank: RankRecord) -> bool:
        return (
            (self.ranks is None or rank.rank in self.ranks)
            and (self.node is None or rank.node_rank == self.node)
            and all(rank.coordinate[axis] == index for axis, index in self.coordinate.items())
        )


def parse_ranks(text: str) -> frozenset[int]:
    """The numbers of `3,5-7`; raises InputError."""
    from ClusterShell.RangeSet import RangeSet, RangeSetException

    try:
        return frozenset(int(number) for number in RangeSet(text))
    except (RangeSetException, ValueError) as error:
        raise InputError(f"{text!r} is no list of ranks", where="--rank", help="for example 3,5-7") from error


def tails(record: JobRecord, ranks: Sequence[RankRecord], hosts: Mapping[str, Host]) -> dict[int, list[OutputTail]]:
    """Two tails (stdout, stderr) for each rank of the present attempt."""
    directories = {node.node_rank: JobPaths(Path(node.directory)) for node in record.nodes}
    return {
        rank.rank: [
            OutputTail(hosts[rank.host], str(path))
            for path in (
                directories[rank.node_rank].stdout(rank.rank, record.attempt),
                directories[rank.node_rank].stderr(rank.rank, record.attempt),
            )
        ]
        for rank in ranks
        if rank.host in hosts
    }


def folded(lines_by_rank: Mapping[int, Sequence[str]]) -> Iterator[tuple[list[int], str]]:
    """(ranks, line) in order; a line that several ranks say at the same place is given once, with all of them."""
    texts: dict[int, Iterator[str]] = {rank: iter(lines) for rank, lines in lines_by_rank.items()}
    while texts:
        row: dict[str, list[int]] = {}
        for rank, lines in list(texts.items()):
            line = next(lines, None)
            if line is None:
                del texts[rank]
            else:
                row.setdefault(line, []).append(rank)
        for line, ranks in row.items():
            yield ranks, line


def label(ranks: Sequence[int], records: Mapping[int, RankRecord]) -> str:
    """`host:rank:coordinate` for one rank, `ranks 0-62` for several."""
    if len(ranks) > 1:
        return f"ranks {fold_numbers(ranks)}"
    record = records[ranks[0]]
    return f"{record.host}:{record.rank}:{record.label}"


def labelled(lines_by_rank: Mapping[int, Sequence[str]], records: Mapping[int, RankRecord]) -> Iterable[str]:
    """The lines to print, each behind its label."""
    for ranks, line in folded(lines_by_rank):
        yield f"{label(ranks, records)} | {line}"

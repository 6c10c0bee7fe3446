"""EvidenceSet: all records that were found, by their type. Pure; order of files never matters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from doctor.evidence.source import Gap

T = TypeVar("T")


class EvidenceSet:
    """Frozen collection of typed records: `evidence.of(RankTable)` gives all records of that exact type.

    Any frozen dataclass may be a record; its module defines it. `gaps` says what could not be read.
    """

    def __init__(self, records: Iterable[object] = (), gaps: Iterable[Gap] = ()) -> None:
        by_type: defaultdict[type, list[object]] = defaultdict(list)
        for record in records:
            by_type[type(record)].append(record)
        self._by_type = dict(by_type)
        self._derived: dict[object, object] = {}
        self.gaps: Sequence[Gap] = tuple(sorted(set(gaps)))

    def of(self, kind: type[T]) -> Sequence[T]:
        """All records of type `kind`, in the order of their files' names."""
        return self._by_type.get(kind, ())  # type: ignore[return-value]

    def once(self, derive: Callable[[EvidenceSet], T]) -> T:
        """`derive(self)`, computed at its first use: what several rules join from the records."""
        if derive not in self._derived:
            self._derived[derive] = derive(self)
        return self._derived[derive]  # type: ignore[return-value]

    def has(self, *kinds: type) -> bool:
        return any(kind in self._by_type for kind in kinds)

    @property
    def kinds(self) -> Sequence[type]:
        return tuple(self._by_type)

    def __len__(self) -> int:
        return sum(map(len, self._by_type.values()))

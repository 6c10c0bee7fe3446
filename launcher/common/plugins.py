"""What packages that are installed beside dlaunch add to it: the objects behind their entry points.

They are looked for by the commands that use them, never at start-up. One that fails takes nothing else with it: who
asked is told which it was and why, and says so in his own report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from launcher.common.finding import Finding

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
_WORDS_LIMIT = 300  # characters of an error


@dataclass(frozen=True)
class Plugin(Generic[T]):
    """`origin` names the entry point and its package in words."""

    origin: str
    value: T


@dataclass(frozen=True)
class PluginFailure:
    """`why` is the error in its own words."""

    origin: str
    why: str

    @classmethod
    def of(cls, origin: str, error: BaseException) -> PluginFailure:
        return cls(origin, f"{type(error).__name__}: {error}"[:_WORDS_LIMIT])

    def __str__(self) -> str:
        return f"{self.origin} failed: {self.why}"


def plugins(group: str, accept: Callable[[object], T]) -> tuple[list[Plugin[T]], list[PluginFailure]]:
    """The entry points of `group` by name, and those that cannot be loaded.

    `accept` gives the loaded object its type, or raises TypeError with what it should be.
    """
    from importlib.metadata import entry_points

    found: list[Plugin[T]] = []
    failed = []
    for point in sorted(entry_points(group=group), key=lambda one: (one.name, one.value)):
        try:
            found.append(Plugin(_origin(point), accept(point.load())))
        except (Exception, SystemExit) as error:  # whatever the import of a stranger's module does
            failed.append(PluginFailure.of(_origin(point), error))
    return found, failed


def _origin(point: EntryPoint) -> str:
    package = f"{point.dist.name} {point.dist.version}" if point.dist else "a package without a name"
    return f"{point.name!r} of {package} ({point.group})"


def guarded(
    find: Callable[[T], Iterable[Finding]], origin: str, tell: Callable[[PluginFailure, T], Finding]
) -> Callable[[T], Iterator[Finding]]:
    """`find` of a plug-in; where it raises or gives something that is no Finding, what `tell` makes of that follows."""

    def safe(looked_at: T) -> Iterator[Finding]:
        try:
            for finding in find(looked_at):
                if not isinstance(finding, Finding):
                    raise TypeError(f"it gave a {type(finding).__name__}, no Finding")
                yield finding
        except Exception as error:  # a stranger's code must not end ours
            yield tell(PluginFailure.of(origin, error), looked_at)

    return safe


def telling(failure: PluginFailure, tell: Callable[[PluginFailure, T], Finding]) -> Callable[[T], Iterable[Finding]]:
    """In the place of a function that could not be loaded: it finds what `tell` makes of that."""
    return lambda looked_at: [tell(failure, looked_at)]

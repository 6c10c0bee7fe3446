"""One merged prefix tree of all ranks' stacks: outermost frames first, rank sets folded, outliers before the crowd."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from doctor.evidence.rank_table import Frame
from doctor.evidence.stacks import Stack
from doctor.rules.places import working_threads
from doctor.text import fold

Key = tuple[str, str, int]


@dataclass
class Node:
    """A frame, the members whose stacks pass through it, and the frames that it called."""

    frame: Frame | None = None
    members: set[str] = field(default_factory=set)
    children: dict[Key, Node] = field(default_factory=dict)

    def ordered(self) -> list[Node]:
        """Children with few members first: who differs is who is looked for."""
        return sorted(self.children.values(), key=lambda node: (len(node.members), sorted(node.members)))

    def to_json(self) -> dict[str, Any]:
        frame = self.frame
        return {
            "frame": None if frame is None else {"name": frame.name, "file": frame.filename, "line": frame.line},
            "members": sorted(self.members, key=_number),
            "children": [node.to_json() for node in self.ordered()],
        }


def merge(stacks: Iterable[Stack]) -> Node:
    """The tree of all working threads; helper threads that idle are left out."""
    root = Node()
    for number, stack in enumerate(stacks):
        main = stack.main
        for thread in working_threads(stack):
            member = _member(stack, number) + ("" if thread is main else f"/{thread.name or thread.os_id}")
            _insert(root, thread.frames, member)
    return root


def _member(stack: Stack, number: int) -> str:
    if stack.rank is not None:
        return str(stack.rank)
    return f"pid{stack.pid}" if stack.pid else stack.where or f"#{number}"


def _insert(root: Node, frames: Sequence[Frame], member: str) -> None:
    node = root
    node.members.add(member)
    for frame in reversed(frames):
        key = (frame.name, frame.filename, frame.line)
        node = node.children.setdefault(key, Node(frame))
        node.members.add(member)


def lines(root: Node, coordinates: Mapping[int, str] | None = None) -> Iterator[str]:
    """The tree as text: a frame a line, indented only where the ranks part."""
    yield f"{name_members(root.members)}"
    yield from _lines(root, "", coordinates or {})


def _lines(node: Node, indent: str, coordinates: Mapping[int, str]) -> Iterator[str]:
    children = node.ordered()
    for index, child in enumerate(children):
        parts = len(children) > 1 or child.members != node.members
        last = index == len(children) - 1
        label = ""
        if parts:
            where = [coordinates[int(one)] for one in child.members if one.isdigit() and int(one) in coordinates]
            label = f"  [{name_members(child.members)}]" + (f" {where[0]}" if len(where) == 1 else "")
        branch = ("└ " if last else "├ ") if parts else "  "
        yield f"{indent}{branch}{child.frame}{label}"
        deeper = ("  " if last else "│ ") if parts else ""
        yield from _lines(child, indent + deeper, coordinates)


def name_members(members: Collection[str]) -> str:
    """Ranks folded, other names listed: `ranks 0-3,7; 2/pt_autograd_0`."""
    ranks = [int(one) for one in members if one.isdigit()]
    others = sorted(one for one in members if not one.isdigit())
    words = [f"rank{'s' if len(ranks) > 1 else ''} {fold(ranks)}"] if ranks else []
    if len(others) > 8:
        others = [*others[:8], f"and {len(others) - 8} more"]
    return "; ".join([*words, *others])


def _number(member: str) -> tuple[int, str]:
    head = member.partition("/")[0]
    return (int(head) if head.isdigit() else 1 << 60, member)

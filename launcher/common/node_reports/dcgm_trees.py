"""Trees that dcgmi draws, as tables or JSON: its health report and the error counters of NVLinks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.common.node_reports.dcgm import Diagnostic, DiagResult
from launcher.common.node_reports.nvidia_smi import NvLinks


@dataclass(frozen=True)
class Leaf:
    """A node of the tree: the labels down to it, its value, and the text that goes on below."""

    path: tuple[str, ...]
    value: str
    more: str = ""


_ROW = re.compile(r"^[^|]*\|\s(?P<label>[^|]*)\|\s?(?P<value>[^|]*)\|\s*$")
_HEAD = re.compile(r"^[^|]*\|\s(?P<head>[^|]*[^|\s])\s*\|\s*$")
_STATES = {"healthy": "Pass", "warning": "Warn", "failure": "Fail"}


def read_tree(text: str) -> tuple[list[str], list[Leaf]]:
    """The lines of the head and the nodes in order. Raises ValueError for JSON that is cut."""
    if '"body"' in text and "{" in text:
        document = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]
        return [str(head) for head in document.get("header", ())], list(_json_leaves(document.get("body", {}), ()))
    heads: list[str] = []
    leaves: list[Leaf] = []
    for line in text.splitlines():
        if row := _ROW.match(line):
            _add(leaves, row["label"], row["value"].strip())
        elif head := _HEAD.match(line):
            heads.append(head["head"])
    return heads, leaves


def _add(leaves: list[Leaf], label: str, value: str) -> None:
    name = label.strip().removeprefix("->").strip(" :")
    if name:
        depth = label.index("->") // 3 + 1 if "->" in label else 0
        above = leaves[-1].path[:depth] if leaves else ()
        leaves.append(Leaf((*above, name), value))
    elif leaves:
        last = leaves[-1]
        leaves[-1] = Leaf(last.path, last.value, f"{last.more} {value}".strip())


def _json_leaves(body: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Leaf]:
    for name, node in body.items():
        more = " ".join(str(one) for one in node.get("overflow", ()))
        yield Leaf((*path, name), str(node.get("value", "")), more)
        yield from _json_leaves(node.get("children", {}), (*path, name))


def parse_health(text: str) -> Diagnostic:
    """`dcgmi health -c`: what is not healthy. No tests ran, so it never passes as a diagnostic."""
    _, leaves = read_tree(text)
    return Diagnostic(None, None, None, 0, tuple(_incidents(leaves)))


def _incidents(leaves: Sequence[Leaf]) -> Iterator[DiagResult]:
    """Systems below GPU → 0 → Errors; where none is named, the state of all."""
    systems = [leaf for leaf in leaves if len(leaf.path) == 4 and leaf.path[2] == "Errors"]
    for leaf in systems or [one for one in leaves if one.path == ("Overall Health",)]:
        status = _STATES.get(leaf.value.lower(), leaf.value)
        group, which = leaf.path[:2] if leaf in systems else ("GPU", None)
        named = group if group == "GPU" else f"{group} {which}"
        text = leaf.more or leaf.value
        if status != "Pass":
            yield DiagResult(
                "health",
                leaf.path[-1],
                which if group == "GPU" else None,
                status,
                text if group == "GPU" else f"{named}: {text}",
            )


def parse_nvlink_errors(text: str) -> list[NvLinks]:
    """`dcgmi nvlink -e` of one GPU."""
    heads, leaves = read_tree(text)
    gpu = next((match[1] for head in heads if (match := re.fullmatch(r"GPU (\d+)", head))), None)
    errors = {
        (int(link[1]), leaf.path[1]): int(leaf.value)
        for leaf in leaves
        if len(leaf.path) == 2 and (link := re.fullmatch(r"Link (\d+)", leaf.path[0])) and leaf.value.isdecimal()
    }
    return [NvLinks(int(gpu), "", errors=errors)] if gpu is not None and errors else []

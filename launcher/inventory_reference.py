"""docs/inventory.md, made from the model: `python -m launcher.inventory_reference > docs/inventory.md`."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator

from launcher.inventory import Common, HostEntry, LocalCluster, Section, SlurmCluster, SshCluster

HEAD = """\
# inventory.yaml

Made from the model by `python -m launcher.inventory_reference`; do not edit.

`dlaunch` reads the file that `--inventory` names, else `./inventory.yaml`, else `~/.config/dlaunch/inventory.yaml`,
else it takes four simulated nodes on this machine. `default` names the cluster that is meant without `--cluster`;
`clusters` maps names to entries. An unknown key, a host that is listed twice or a bad range is an error that names
file, line and field.

    default: boxes
    clusters:
      boxes:
        kind: ssh
        hosts: gpu[01-16]
        user: me
        spares: [gpu16]
        shared_filesystem: true
        directory: /shared/dlaunch
"""
SECTIONS: dict[str, type[Section]] = {
    "Every cluster": Common,
    "kind: local": LocalCluster,
    "kind: ssh": SshCluster,
    "An entry of `hosts`": HostEntry,
    "kind: slurm": SlurmCluster,
}


def reference() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for title, model in SECTIONS.items() for line in _section(title, model))])


def _section(title: str, model: type[Section]) -> Iterator[str]:
    yield from (f"## {title}", "", "| key | value | default | meaning |", "|---|---|---|---|")
    for name, info in model.model_fields.items():
        own = name in model.__annotations__ and name != "kind"
        if own:
            default = "required" if info.is_required() else _shown(info.default)
            yield f"| `{name}` | {_type(info.annotation)} | {default} | {info.description or ''} |"
    yield ""


def _shown(default: object) -> str:
    return "" if default in (None, (), {}) else f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _type(annotation: object) -> str:
    """`int | None` -> number; containers by what they hold."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(part) for part in typing.get_args(annotation) if part is not type(None))
    if origin is tuple:
        return f"list of {_type(typing.get_args(annotation)[0])}"
    if origin is dict:
        return "mapping"
    names = {str: "text", int: "number", bool: "true or false", HostEntry: "names or mappings"}
    return names.get(typing.cast("type", annotation), "text")


if __name__ == "__main__":
    print(reference(), end="")

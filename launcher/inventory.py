"""inventory.yaml -> Cluster: where jobs may run. Every error names file, line, field and what helps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from launcher.errors import InputError, suggestion
from launcher.hosts.names import expand
from launcher.inventory_file import find_inventory, read_inventory

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

SHIPPED = """\
# Written by dlaunch: see docs/inventory.md for every key.
default: local
clusters:
  local:
    kind: local
    nodes: 4            # 4 simulated nodes on this machine
    nproc_per_node: 2
"""


def _lines(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _scalars(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): str(item) if isinstance(item, int | float) else item for key, item in value.items()}
    return value


def _names(text: str) -> list[str]:
    """`expand`, with the error that pydantic puts in its place."""
    try:
        return expand(text)
    except InputError as error:
        raise ValueError(str(error)) from error


Lines = Annotated[tuple[str, ...], BeforeValidator(_lines)]
Environment = Annotated[dict[str, str], BeforeValidator(_scalars)]


class Section(BaseModel):
    """A mapping in the file; a key that we do not know is an error, not a wish."""

    # A supervisor needs one of the models: those that are not used need not be built.
    # `time: 90` and `account: 4711` are texts that YAML takes for numbers.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, coerce_numbers_to_str=True)


class Common(Section):
    """Keys of every kind of cluster."""

    nproc_per_node: int | None = Field(None, ge=1, description="ranks on each node; default: its devices, or 1")
    python: str | None = Field(None, description="the Python on the hosts; default: this one, on other hosts python3")
    setup: Lines = Field((), description="shell lines that run before the job, e.g. `module load cuda`")
    container: Lines = Field((), description="command prefix that enters a container, as a list of words")
    workdir: str | None = Field(None, description="folder in which the script runs; default: the present one")
    env: Environment = Field({}, description="variables for every rank")


class LocalCluster(Common):
    """Simulated nodes on this machine."""

    kind: Literal["local"]
    nodes: int = Field(4, ge=1, description="simulated nodes on this machine")
    nproc_per_node: int | None = Field(2, ge=1, description="ranks on each node")


class HostEntry(Section):
    """A host that differs from its cluster's settings; `name` may be a range."""

    name: str
    address: str | None = Field(None, description="address to connect to; default: the name")
    user: str | None = None
    port: int | None = Field(None, ge=1, le=65535)
    identity: str | None = None
    switch: str | None = Field(None, description="leaf switch, for placement")
    rack: str | None = None
    env: Environment = {}


class SshCluster(Common):
    """Hosts that are reached by SSH."""

    kind: Literal["ssh"]
    hosts: tuple[HostEntry, ...] = Field(description="names or ranges such as gpu[01-16], or mappings with `name`")
    user: str | None = Field(None, description="login name")
    port: int | None = Field(None, ge=1, le=65535)
    identity: str | None = Field(None, description="private key file")
    ssh_config: str | None = Field(None, description="OpenSSH configuration; default ~/.ssh/config")
    jump: str | None = Field(None, description="gateway as [user@]host[:port]; default: ssh_config's ProxyJump")
    directory: str | None = Field(None, description="folder for the jobs' directories on the hosts")
    forward: Lines = Field((), description="names of variables to forward from the shell")
    spares: tuple[str, ...] = Field((), description="hosts of `hosts` that only replace failed ones")
    shared_filesystem: bool = Field(False, description="whether `directory` and the code are the same on all hosts")

    @field_validator("hosts", mode="before")
    @classmethod
    def _names_are_entries(cls, value: object) -> object:
        entries = [value] if isinstance(value, str | Mapping) else value
        if not isinstance(entries, list):
            return entries
        return [{"name": entry} if isinstance(entry, str) else entry for entry in entries]

    @field_validator("hosts")
    @classmethod
    def _each_host_once(cls, entries: tuple[HostEntry, ...]) -> tuple[HostEntry, ...]:
        expanded = tuple(entry.model_copy(update={"name": name}) for entry in entries for name in _names(entry.name))
        seen: set[str] = set()
        for entry in expanded:
            if entry.name in seen:
                raise ValueError(f"host {entry.name} is listed twice")
            seen.add(entry.name)
        if not expanded:
            raise ValueError("no host is listed")
        return expanded

    @field_validator("spares", mode="before")
    @classmethod
    def _spares_are_names(cls, value: object) -> object:
        texts = _lines(value)
        if not isinstance(texts, list):
            return value
        return [name for text in texts for name in (_names(text) if isinstance(text, str) else [text])]

    @model_validator(mode="after")
    def _spares_are_hosts(self) -> SshCluster:
        names = [entry.name for entry in self.hosts]
        for spare in self.spares:
            if spare not in names:
                raise ValueError(f"spare {spare} is not among hosts{suggestion(spare, names)}")
        return self


class SlurmCluster(Common):
    """Nodes that Slurm allocates. Each key is an sbatch option of the same meaning."""

    kind: Literal["slurm"]
    nodes: int | None = Field(None, ge=1, description="nodes if --nodes is not given")
    directory: str | None = Field(None, description="folder for the jobs' directories, which all nodes see")
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = Field(None, description="time limit as Slurm writes it, e.g. 1-00:00:00")
    constraint: str | None = None
    gres: str | None = None
    gpus_per_node: str | int | None = None
    cpus_per_task: int | None = Field(None, ge=1, description="CPUs for each node's agent and ranks")
    mem: str | int | None = None
    nodelist: str | None = None
    exclude: str | None = None
    reservation: str | None = None
    switches: str | int | None = None
    segment: int | None = Field(None, ge=1)
    licenses: str | None = None
    container_image: str | None = Field(None, description="pyxis image")
    container_mounts: Lines = ()
    signal_seconds: int = Field(90, ge=1, description="warning before the time limit or preemption, in seconds")
    requeue: bool = Field(True, description="requeue after preemption or node failure")
    sbatch: dict[str, str | int | bool] = Field({}, description="any other sbatch flag: value")


Cluster = LocalCluster | SshCluster | SlurmCluster


class Inventory(Section):
    """The whole file."""

    default: str
    clusters: dict[str, Annotated[Cluster, Field(discriminator="kind")]] = Field(min_length=1)

    @model_validator(mode="after")
    def _default_is_a_cluster(self) -> Inventory:
        if self.default not in self.clusters:
            raise ValueError(f"default {self.default!r} is no cluster{suggestion(self.default, self.clusters)}")
        return self

    def cluster(self, name: str | None) -> tuple[str, Cluster]:
        """The named cluster or the default one; raises InputError with the nearest name."""
        chosen = name or self.default
        if chosen not in self.clusters:
            known = ", ".join(self.clusters)
            raise InputError(
                f"no cluster {chosen!r}{suggestion(chosen, self.clusters)}", where="--cluster", help=f"known: {known}"
            )
        return chosen, self.clusters[chosen]


def load_inventory(given: Path | None) -> tuple[Inventory, str]:
    """The inventory and the name of its file. Raises InputError (`FILE:LINE: field: …`)."""
    path = find_inventory(given)
    if path is None:
        return parse_inventory(SHIPPED, "built-in inventory"), ""
    return parse_inventory(read_inventory(path), str(path)), str(path.resolve())


class _Loader(yaml.SafeLoader):
    """Takes plain digits alone for numbers: YAML 1.1 reads `time: 4:00:00` as 14400, base sixty."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag.rpartition(":")[2] not in ("int", "float")]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?\d+$"), list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+\.\d*$"), list("-+0123456789"))


def parse_inventory(text: str, where: str) -> Inventory:
    """Read YAML text; `where` names its file in errors."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        lines = text.splitlines()
        line = min(mark.line + 1 if mark else 1, max(1, len(lines)))  # it may stand behind the last line
        help = "inside a list, quote a range: ['gpu[01-16]']" if lines and "[" in lines[line - 1] else ""
        raise InputError(f"not YAML: {getattr(error, 'problem', error)}", where=f"{where}:{line}", help=help) from error
    repeated = next(_repeated_keys(root), None)
    if repeated is not None:
        raise InputError("this key is given twice", where=f"{where}:{repeated.start_mark.line + 1}: {repeated.value}")
    try:
        return Inventory.model_validate(content)
    except ValidationError as error:
        first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")  # a misspelt key tells more
        raise _input_error(first, root, where) from error


def _repeated_keys(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    yield key
                seen.add(key.value)
            yield from _repeated_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated_keys(item)


def _input_error(error: ErrorDetails, root: yaml.Node | None, where: str) -> InputError:
    line, field = _place(root, error["loc"])
    message, last = error["msg"].removeprefix("Value error, "), str(error["loc"][-1]) if error["loc"] else ""
    help = ""
    if error["type"] == "extra_forbidden":
        known = _keys_beside(error["loc"])
        message, help = f"unknown key{suggestion(last, known)}", "known: " + ", ".join(known)
    return InputError(message, where=f"{where}:{line}: {field or 'file'}", help=help)


def _place(root: yaml.Node | None, location: Any) -> tuple[int, str]:
    """Line (from 1) and dotted name of the deepest part of `location` that the file holds."""
    node, line, names = root, 1 if root is None else root.start_mark.line + 1, []
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == str(part)]
            if not found:
                continue  # the discriminator's value stands in pydantic's path, but not in the file
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            continue
        names.append(str(part))
    if location and str(location[-1]) not in names and not isinstance(location[-1], int):
        names.append(str(location[-1]))
    return line, ".".join(names)


def _keys_beside(location: Any) -> list[str]:
    kinds: dict[str, type[Section]] = {"local": LocalCluster, "ssh": SshCluster, "slurm": SlurmCluster}
    if "hosts" in location:
        return list(HostEntry.model_fields)
    kind = next((kinds[part] for part in location[2:3] if part in kinds), Inventory)
    return list(kind.model_fields)

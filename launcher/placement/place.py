"""`place`: mesh and hosts -> which rank goes where, what it costs, and what limits it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations

from launcher.errors import InputError
from launcher.placement.axes import Axis, axes_of, in_order, megatron_order, ordered_names
from launcher.placement.bound import best_possible
from launcher.placement.cluster import Cluster, Network, Node, Place, make_node
from launcher.placement.cost import Objective, Slowest, Volume, explain, slowest
from launcher.placement.exact import EXACT_DEVICES, Search
from launcher.placement.measured import UNMEASURED, Measured
from launcher.placement.packed import DeviceChooser, packed_order, refined_order
from launcher.placement.result import NO_GAIN, AxisReport, PlacedNode, Placement, Report
from launcher.spec import MeshSpec
from launcher.topology.model import HostTopology

ALL_ORDERS_RANKS = 64  # up to here every order of the axes is tried; above, the given one and Megatron's


def place(
    mesh: MeshSpec,
    hosts: Sequence[HostTopology],
    nproc_per_node: int,
    axes_free: bool,
    *,
    traffic: Mapping[str, Volume] | None = None,
    network: Network | None = None,
    measured: Measured = UNMEASURED,
    excluded: Collection[str] = (),
    leftover: str | None = None,
) -> Placement:
    """Choose order of axes (only if `axes_free`), nodes and devices so that the slowest group of each axis is fastest.

    `traffic` is what a rank sends in a step by axis; without it axes are optimised one after the other, the most
    demanding first and `leftover` last. `measured` links take the place of seeds. `excluded` are hosts and devices
    (name, index or UUID, or HOST:DEVICE) that must stay free; busy devices stay free too. Raises InputError when the
    hosts cannot carry the mesh.
    """
    network = network or Network()
    nodes = measured.applied(usable_nodes(mesh, hosts, nproc_per_node, network, excluded))
    placer = Placer(Cluster(tuple(nodes)), nproc_per_node, traffic, measured, leftover)
    index = placer.index_order(mesh)
    best = placer.best([*orders(mesh)] if axes_free else [mesh], index)
    chosen = best if placer.gain(index, best)[1] >= NO_GAIN else index
    notes = assumptions(network, placer.cluster, measured) + ([] if axes_free else placer.unexpressed(mesh, chosen))
    return Placement(
        mesh=chosen.mesh,
        nodes=placer.placed_nodes(chosen),
        nproc_per_node=nproc_per_node,
        report=placer.report(index, chosen, best.exact, notes),
    )


@dataclass(frozen=True)
class Choice:
    """One candidate: a mesh, the place of each rank, the slowest group by axis, whether it is proven best."""

    mesh: MeshSpec
    places: tuple[Place, ...]
    slowest: Mapping[str, Slowest]
    exact: bool = False

    @property
    def gbps(self) -> dict[str, float]:
        return {axis: group.gbps for axis, group in self.slowest.items()}


@dataclass(frozen=True)
class Placer:
    """The cluster and the rules of one placement."""

    cluster: Cluster
    per_node: int
    traffic: Mapping[str, Volume] | None
    measured: Measured
    leftover: str | None
    _axes: dict[str, tuple[Axis, ...]] = field(default_factory=dict)

    @cached_property
    def devices(self) -> DeviceChooser:
        return DeviceChooser(self.cluster, self.per_node, Objective(self.traffic))

    def objective(self, mesh: MeshSpec) -> Objective:
        """Whether an axis' groups cross nodes, and so what a message takes, follows from the order of the axes."""
        if self.traffic is None:
            return Objective()
        inside = {
            axis.name: all(group[0] // self.per_node == group[-1] // self.per_node for group in axis.groups)
            for axis in self.axes(mesh)
        }
        return Objective(self.traffic, {name: self.measured.alpha(one_node) for name, one_node in inside.items()})

    def axes(self, mesh: MeshSpec) -> tuple[Axis, ...]:
        key = str(mesh)
        if key not in self._axes:
            self._axes[key] = axes_of(mesh, self.leftover)
        return self._axes[key]

    def key(self, choice: Choice) -> tuple[float, ...]:
        return self.objective(choice.mesh).key(choice.gbps)

    def choice(self, mesh: MeshSpec, places: Sequence[Place], exact: bool = False) -> Choice:
        """A candidate with its costs; axes are named in one order, whatever the mesh's order is."""
        found = {axis.name: slowest(self.cluster, axis, places) for axis in self.axes(mesh)}
        names = ordered_names(megatron_order(mesh), self.leftover)
        return Choice(mesh, tuple(places), {name: found[name] for name in names}, exact)

    def index_order(self, mesh: MeshSpec) -> Choice:
        """Hosts as given and devices by index: what a launcher that knows no topology does."""
        count = mesh.world_size // self.per_node
        return self.choice(mesh, [(node, at) for node in range(count) for at in range(self.per_node)])

    def best(self, meshes: Sequence[MeshSpec], index: Choice) -> Choice:
        """The best candidate over all orders of the axes; index order, which is one of them, wins ties."""
        found = [self.search(mesh) for mesh in meshes]
        best = min(found, key=self.key)
        return best if self.key(best) < self.key(index) else replace(index, exact=best.exact)

    def search(self, mesh: MeshSpec) -> Choice:
        """Exact for few devices, packed for many."""
        axes = self.axes(mesh)
        if sum(node.slots for node in self.cluster.nodes) <= EXACT_DEVICES:
            search = Search(self.cluster, axes, mesh.world_size, self.per_node, self.objective(mesh))
            return self.choice(mesh, search.best(), search.exact)
        order = packed_order(self.cluster.nodes, mesh, self.per_node)

        def cost(order: Sequence[int]) -> tuple[float, ...]:
            return self.key(self.choice(mesh, self.devices.places(axes, order)))

        return self.choice(mesh, self.devices.places(axes, refined_order(order, len(self.cluster.nodes), cost)))

    def gain(self, index: Choice, chosen: Choice) -> tuple[str | None, float]:
        """The axis that decides and index order's cost over the chosen one's: with traffic of all axes, else of the
        first axis that gains."""
        if self.traffic is not None:
            costs = [sum(self.key(choice)) for choice in (index, chosen)]
            return None, costs[0] / costs[1] if costs[1] else 1.0
        ratios = {axis: chosen.gbps[axis] / gbps for axis, gbps in index.gbps.items()}
        return next(
            ((axis, ratio) for axis, ratio in ratios.items() if ratio >= NO_GAIN), (next(iter(ratios), None), 1.0)
        )

    def report(self, index: Choice, chosen: Choice, exact: bool, notes: Sequence[str]) -> Report:
        costs = {
            axis.name: explain(self.cluster, axis, chosen.slowest[axis.name], chosen.places)
            for axis in self.axes(chosen.mesh)
        }
        axes = tuple(
            AxisReport(
                axis.name, index.gbps[axis.name], cost.gbps, best_possible(self.cluster, axis, self.per_node), cost
            )
            for axis in self.axes(index.mesh)
            if (cost := costs[axis.name])
        )
        deciding, gain = self.gain(index, chosen)
        objective, at_first = self.objective(chosen.mesh), self.objective(index.mesh)
        named = [axis for axis in axes if axis.axis != self.leftover] or axes
        leading = next((axis.axis for axis in named if axis.axis == deciding), named[0].axis if named else None)
        counted = named if self.traffic is not None else [axis for axis in named if axis.axis == leading]
        slowest = max(named, key=lambda axis: objective.seconds(axis.axis, axis.chosen_gbps), default=None)
        return Report(
            unit="s/GB" if self.traffic is None else "s/step",
            index_order=sum(at_first.seconds(axis.axis, axis.index_order_gbps) for axis in counted),
            chosen=sum(objective.seconds(axis.axis, axis.chosen_gbps) for axis in counted),
            lower_bound=sum(objective.seconds(axis.axis, axis.bound_gbps) for axis in counted),
            axis=leading if self.traffic is None else None,
            limiting=slowest.limit if slowest else None,
            gain=gain,
            gaining_axis=deciding if gain >= NO_GAIN else None,
            axes=axes,
            exact=exact,
            notes=tuple(notes),
        )

    def unexpressed(self, mesh: MeshSpec, chosen: Choice) -> list[str]:
        """What another order of the axes would gain, which torchrun cannot give a script that lays out its own mesh."""
        if len(mesh.axes) < 2 or mesh.world_size > ALL_ORDERS_RANKS or mesh.world_size == self.per_node:
            return []
        best = self.best(orders(mesh), chosen)
        axis, ratio = self.gain(chosen, best)
        if ratio < NO_GAIN:
            return []
        what = f"{axis} {ratio:.2f} times faster" if axis else f"a step {ratio:.2f} times cheaper"
        return [
            f"axes in the order {','.join(best.mesh.axes)} would make {what}: a script gets it by reading DLAUNCH_MESH"
        ]

    def placed_nodes(self, choice: Choice) -> tuple[PlacedNode, ...]:
        blocks = [choice.places[i : i + self.per_node] for i in range(0, len(choice.places), self.per_node)]
        return tuple(self.placed_node(block) for block in blocks)

    def placed_node(self, block: Sequence[Place]) -> PlacedNode:
        node = self.cluster.nodes[block[0][0]]
        devices = [node.devices[at] for _, at in block] if node.devices else []
        return PlacedNode(node.name, tuple(d.handle for d in devices), tuple(d.index for d in devices))


def orders(mesh: MeshSpec) -> list[MeshSpec]:
    """The orders of axes to try: all for few ranks, else the given one and Megatron's."""
    if mesh.world_size > ALL_ORDERS_RANKS:
        return [mesh, megatron_order(mesh)]
    return [mesh, *(in_order(mesh, names) for names in permutations(mesh.axes) if names != mesh.axes)]


def usable_nodes(
    mesh: MeshSpec, hosts: Sequence[HostTopology], per_node: int, network: Network, excluded: Collection[str]
) -> list[Node]:
    """Hosts with places enough. Raises InputError, naming those that lack some, when the mesh needs more."""
    if mesh.world_size % per_node:
        raise InputError(f"{mesh} has {mesh.world_size} ranks, not a multiple of {per_node} per node", where="--mesh")
    nodes = [
        make_node(host, per_node, network, [item.removeprefix(f"{host.host}:") for item in excluded])
        for host in hosts
        if host.host not in excluded
    ]
    fit = [node for node in nodes if node.slots >= per_node]
    if len(fit) < mesh.world_size // per_node:
        short = ", ".join(f"{node.name} has {node.slots}" for node in nodes if node.slots < per_node)
        raise InputError(
            f"{mesh} needs {mesh.world_size // per_node} hosts with {per_node} free devices, there are {len(fit)}"
            + (f" ({short})" if short else ""),
            where="--mesh",
            help="lower --nproc-per-node or the degrees of --mesh, or free devices",
        )
    return fit


def assumptions(network: Network, cluster: Cluster, measured: Measured) -> list[str]:
    """What placement took for granted because nobody told it."""
    hosts = [node.host for node in cluster.nodes]
    notes = [measured.note()] if measured else []
    if len(hosts) > 1 and network.assumed(hosts) and not measured.between:
        notes.append("NIC speed is not known: 100 Gbit/s is assumed; --nics-per-node and --nic-gbps tell it")
    if hidden := [host.host for host in hosts if host.opaque]:
        notes.append(f"{', '.join(hidden[:4])}: a virtual machine hides PCIe paths; placement there is a guess")
    if len({device.model for node in cluster.nodes for device in node.devices}) > 1:
        notes.append("devices of several models are mixed: the slowest one sets the pace of every group it is in")
    return notes

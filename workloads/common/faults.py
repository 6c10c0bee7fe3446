"""Fire drills as data, importable without torch: what can be made to go wrong, and where it makes sense.

`--fault slow_compute:rank=3,step=5,seconds=0.5` — off unless asked, the same every time. `injections` carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from workloads.common import states

Point = Literal["start", "data", "forward", "reduce", "checkpoint"]
WORKLOADS = tuple(states.WORKLOADS)
BACKENDS = ("gloo", "nccl")
COMMON = {"rank": "1", "step": "5"}  # steps count from 1, as they are printed
FOREVER = "1e9"


@dataclass(frozen=True)
class Kind:
    """One kind of fault: the point of the loop where it acts, what it does, its parameters and where it makes sense."""

    point: Point
    text: str
    defaults: Mapping[str, str] = field(default_factory=dict)  # beside rank and step
    workloads: tuple[str, ...] = WORKLOADS
    backends: tuple[str, ...] = BACKENDS
    on_gloo: str = ""  # how gloo shows it where that is not as NCCL does


_SECONDS = {"seconds": "0.5"}
_ABORTS = "aborts or fails with a message of gloo instead of hanging"
_SHIFTED = "hangs where the next collective fits or is in another group, aborts where it has another size"
_UNRECORDED = "its recorder keeps no sends: stacks and exits tell"
_REPLICATED = ("ddp", "hsdp", "nd")  # may hold whole copies of one parameter shard

KINDS: dict[str, Kind] = {
    "skip_collective": Kind("reduce", "one rank leaves out the all-reduce of loss and norm", on_gloo=_SHIFTED),
    "extra_collective": Kind("reduce", "one rank all-reduces once more than the others", on_gloo=_SHIFTED),
    "collective_order": Kind("reduce", "one rank all-reduces before it broadcasts, the others after", on_gloo=_ABORTS),
    "collective_shape": Kind("reduce", "one rank reduces another number of elements", on_gloo=_ABORTS),
    "collective_dtype": Kind("reduce", "one rank reduces another element type", on_gloo=_ABORTS),
    "slow_compute": Kind("forward", "one rank computes longer, from that step on", _SECONDS),
    "slow_data": Kind("data", "one rank waits for its data, from that step on", _SECONDS),
    "slow_gc": Kind("forward", "one rank collects a heap full of cycles at every step", {"objects": "2000000"}),
    "slow_checkpoint": Kind("checkpoint", "one rank writes its checkpoint slowly", {"seconds": "20"}),
    "slow_node": Kind("forward", "all ranks of one node compute longer", {"node": "1", **_SECONDS}),
    "stop": Kind("forward", "one rank gets SIGSTOP"),
    "die": Kind("forward", "one rank exits without a word: status 0, or SIGKILL", {"how": "exit"}),
    "swallow": Kind("forward", "one rank swallows an exception and leaves out the rest of its step", on_gloo=_SHIFTED),
    "early_exit": Kind("data", "one rank runs out of data and leaves the loop"),
    "unused_parameter": Kind("forward", "one rank's last feed-forward is bypassed: no gradients", {}, ("ddp",)),
    "rank0_evaluation": Kind("forward", "rank 0 alone evaluates, with a collective in it", {"rank": "0"}),
    "dataloader": Kind("start", "one rank's data loader worker waits for a lock that nobody frees"),
    "file_lock": Kind("data", "one rank waits for a lock on a file that is never freed"),
    "gil": Kind("forward", "one rank's native code keeps the interpreter's lock", {"seconds": FOREVER}),
    "threads": Kind("reduce", "a second thread uses the same group, on one rank before the first thread does"),
    "p2p_order": Kind(
        "forward",
        "two neighbours send to each other before either receives",
        on_gloo=_UNRECORDED,
    ),
    "mesh_order": Kind("start", "the mesh is laid out innermost axis first", {}, ("hsdp", "tp", "pp", "cp", "nd")),
    "duplicate_device": Kind("start", "one rank takes its neighbour's device", backends=("nccl",)),
    "expert_imbalance": Kind(
        "start", "the routers send nearly all tokens to one expert", {"expert": "0"}, ("ep", "nd")
    ),
    "checkpoint_endless": Kind("checkpoint", "one rank never returns from writing its checkpoint"),
    "nan": Kind("forward", "one rank's logits become NaN"),
    "set_epoch": Kind("start", "every epoch has the order of the first"),
    "same_data": Kind("start", "one rank reads the data of rank 0"),
    "tp_seed": Kind("forward", "one rank draws from another seed than its tensor group", {}, ("tp", "nd")),
    "diverge": Kind("forward", "one rank's parameters move away from its replicas'", {"size": "0.01"}, _REPLICATED),
}


@dataclass(frozen=True)
class Fault:
    """One fault as asked for."""

    name: str
    settings: Mapping[str, str]

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    @property
    def rank(self) -> int:
        return int(self.settings["rank"])

    @property
    def step(self) -> int:
        """Counted from 1."""
        return int(self.settings["step"])

    @property
    def seconds(self) -> float:
        return float(self.settings["seconds"])


def parse_fault(text: str) -> Fault | None:
    """Read `KIND[:key=value,…]`; None for an empty text. Raises ValueError naming the unknown kind or key."""
    if not text:
        return None
    name, _, rest = text.partition(":")
    if name not in KINDS:
        raise ValueError(f"fault: {name!r} is none of {', '.join(KINDS)}")
    settings = {**COMMON, **KINDS[name].defaults}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in settings:
            raise ValueError(f"fault: {name} has no {key!r}, only {', '.join(settings)}")
        settings[key] = value
    fault = Fault(name, settings)
    _ = fault.rank, fault.step  # a number that is none shows here, not at the step
    return fault


def require_sense(fault: Fault | None, workload: str, backend: str) -> None:
    """Raises ValueError where the fault cannot act; a workload that is none of ours may try any."""
    if fault is None:
        return
    if workload in WORKLOADS and workload not in fault.kind.workloads:
        raise ValueError(f"fault: {fault.name} makes sense in {', '.join(fault.kind.workloads)}, not in {workload}")
    if backend not in fault.kind.backends:
        raise ValueError(f"fault: {fault.name} makes sense on {', '.join(fault.kind.backends)}, not on {backend}")

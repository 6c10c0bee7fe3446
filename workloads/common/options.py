"""Command-line options as typed dataclasses: one field is one flag. A workload subclasses Options to add its own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from workloads.common.config import PRESETS, ModelConfig, preset

if TYPE_CHECKING:
    from workloads.common.strategy import Job

T = TypeVar("T", bound="Options")


def flag(default: Any, text: str, **argument: Any) -> Any:
    """A field `name_of_flag` that is read from `--name-of-flag`; bool fields get `--no-name-of-flag` too."""
    return field(default=default, metadata={"help": text, **argument})


@dataclass(frozen=True)
class Options:
    """What every workload understands."""

    steps: int = flag(20, "optimizer steps to train")
    batch: int = flag(16, "global number of sequences per step, over all ranks")
    seq: int = flag(128, "tokens per sequence")
    accumulate: int = flag(1, "micro-batches per step and rank, their gradients summed")
    preset: str = flag("debug", "model shape", choices=tuple(PRESETS))
    layers: int | None = flag(None, "other number of layers than the preset's")
    experts: int | None = flag(None, "experts per feed-forward (0: dense)")
    top_k: int | None = flag(None, "experts per token")
    lr: float = flag(3e-3, "learning rate of AdamW")
    clip: float = flag(1.0, "largest global gradient norm; 0 leaves gradients as they are")
    dropout: float | None = flag(None, "share of the blocks' outputs that is dropped")
    dtype: str = flag(
        "float32",
        "compute type; parameters are kept in float32, with float64 (which tells rounding from mistakes) in that",
        choices=("float32", "bfloat16", "float64"),
    )
    load: str = flag("", "directory with weights to start from, as Hugging Face's Llama stores them", metavar="DIR")
    export: str = flag("", "write the trained weights there in the same form", metavar="DIR")
    data: str = flag("stdlib", "stdlib (the standard library's sources), synthetic, or a file or directory of text")
    workers: int = flag(0, "data loader processes per rank")
    seed: int = flag(0, "of weights, data order and dropout")
    mesh: str = flag("", "AXIS=DEGREE,… outermost first; default: $DLAUNCH_MESH, else the workload's own")
    device: str = flag(
        "auto", "auto takes cuda if every rank of the node has a device", choices=("auto", "cpu", "cuda")
    )
    recompute: bool = flag(False, "activation checkpointing: keep each block's input alone, compute the rest again")
    compile: bool = flag(False, "torch.compile each block")
    deterministic: bool = flag(False, "deterministic kernels, or an error where there is none")
    checkpoint_dir: str = flag("", "save here and resume from here; default: $DLAUNCH_CHECKPOINT_DIR")
    checkpoint_every: int = flag(0, "steps between checkpoints; 0 saves only at a signal and at the end")
    checkpoint_keep: int = flag(2, "complete checkpoints that stay")
    checkpoint_async: bool = flag(False, "write checkpoints in the background")
    timeout: float = flag(300.0, "seconds until a collective is given up")
    first_timeout: float = flag(1800.0, "the same during the first step, which compiles and connects")
    gc_every: int = flag(100, "steps between garbage collections, at the same step on all ranks; 0 leaves it to Python")
    profile: str = flag("", "steps to profile, counted from 1", metavar="FIRST:END")
    output: str = flag("", "where traces and memory snapshots go; default: beside $DLAUNCH_PROGRESS, else here")
    compare_replicas: int = flag(0, "steps between comparisons of all copies of the parameters by hash; 0: never")
    count: bool = flag(False, "at the end print the last step's collectives and bytes as counted, beside the table")
    fault: str = flag("", "drill: KIND[:key=value,…]", metavar="KIND[:key=value,…]")

    def __post_init__(self) -> None:
        if self.count and self.dtype == "float64":
            raise ValueError("count: the table has no float64: add --no-count")

    @classmethod
    def of(cls: type[T], job: Job) -> T:
        """The options of a job whose workload has these."""
        assert isinstance(job.options, cls)
        return job.options

    def model(self) -> ModelConfig:
        return preset(self.preset, layers=self.layers, experts=self.experts, top_k=self.top_k, dropout=self.dropout)


def parse(kind: type[T], description: str, argv: Sequence[str] | None = None) -> T:
    """Read `argv` (default: the process's) into `kind`; wrong usage exits with status 2 as argparse does."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    hints = get_type_hints(kind)
    for entry in fields(kind):
        settings = dict(entry.metadata)
        settings["help"] += f" (default: {entry.default})" if entry.default not in ("", None) else ""
        if hints[entry.name] is bool:
            settings["action"] = argparse.BooleanOptionalAction
        else:
            settings["type"] = next(t for t in (int, float, str) if t in _members(hints[entry.name]))
        parser.add_argument(f"--{entry.name.replace('_', '-')}", default=entry.default, **settings)
    try:
        return kind(**vars(parser.parse_args(argv)))
    except ValueError as error:
        parser.error(str(error))


def _members(hint: Any) -> tuple[Any, ...]:
    """`int | None` -> (int, NoneType); `int` -> (int,)."""
    return getattr(hint, "__args__", (hint,))

"""What the names in trainers' log lines mean: a key as printed, and its unit, to a field and a factor.

Keys are compared in one form: lower case, spaces and hyphens as underscores.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

COUNTERS = {  # name -> how far it is trusted to be *the* step, where a line has several
    "global_step": 4, "num_updates": 4, "global_steps": 4, "global_step/max_steps": 4,
    "optimizer_step": 3, "step": 3, "steps": 3, "train_step": 3, "training_step": 3, "update": 3, "updates": 3,
    "s": 3, "训练次数": 3, "步数": 3, "步": 3, "步骤": 3, "训练步数": 3,
    "global_iteration": 4, "training_iteration": 2, "迭代": 2, "迭代次数": 2,
    "iteration": 2, "iter": 2, "iters": 2, "it": 2, "iter_num": 2, "train_iter": 2, "global_iter": 4,
    "current_steps": 3, "step_i": 3, "batch": 1, "up": 4, "upd": 4, "batch_idx": 1, "minibatch": 1, "批次": 1,
}  # fmt: skip
_TIMES = (
    "btime", "step_time", "time_per_step", "iter_time", "time_per_iteration", "time_per_iter",
    "elapsed_time_per_iteration", "iteration_time", "batch_time", "time", "seconds", "took", "dt", "step_avg",
    "timer", "batch_cost", "step_cost", "train_step_timing", "step_timing", "total_step_time", "train_step_time",
    "s/it", "s/iter", "s/step", "sec/step", "sec/iter", "seconds/step", "elapsed_time_per_step", "step_duration",
    "time/step", "time/iter", "avg_batch_cost", "time_per_batch", "iter_dt", "per_step_time", "ms", "batch_timing",
    "secs/step", "s/batch", "sec/batch",
)  # fmt: skip
_RATES = (
    "it/s", "iter/s", "iters/s", "steps/s", "step/s", "train_speed", "batch/s", "it/sec", "iter/sec", "steps/sec",
    "ups", "updates/s", "steps_per_sec", "steps_per_second", "iters_per_sec", "it_per_sec", "iterations/s",
    "batches_per_sec", "train_steps/sec", "train_steps_per_sec",
)  # fmt: skip
_TOKENS_EACH = (
    "tokens/s/gpu", "tps/gpu", "tokens_per_sec_per_gpu", "tokens_per_second_per_gpu", "tokens_per_gpu_per_second",
    "tokens/s/device", "tokens/sec/device", "tokens/sec/gpu", "tgs", "tokens/gpu/s", "throughput/device/tps",
    "throughput/device/tokens_per_second",
    "perf/throughput", "tok/s/gpu", "tok/sec/gpu", "tok/s/device",
    "tokens/second/gpu", "tps_per_gpu", "tokens_per_device_per_second",
    "tokens_per_sec_per_device", "tokens_per_second_per_device", "tokens/s/chip", "tokens/gpu/sec",
)  # fmt: skip
_TOKENS = (
    "tokens/s", "tokens/sec", "tokens/second", "tok/s", "tok/sec", "tps", "wps", "words/s", "tokens_per_sec",
    "tokens_per_second", "tokens_per_s", "toks/s", "token/s", "train_tokens_per_second", "tok_per_sec", "tok_s",
)  # fmt: skip
_SAMPLES = (
    "samples/s", "samples/sec", "samples/second", "samples_per_second", "samples_per_sec", "samples_per_s",
    "currsamplespersec", "samplespersec", "ips", "images/s", "img/s", "images/sec", "imgs/s", "sequences/s",
    "instances/s", "examples/s", "examples/sec", "seq/s", "img/sec", "throughput",
    "train_samples_per_second", "/s", "/sec",
)  # fmt: skip
_MEMORY = (
    "memory", "mem", "max_mem", "max_memory", "memory/max_mem_active", "memory/max_active", "memallocated",
    "gpu_memory", "max_mem_mb", "gpu_memory/gpu_active_mem", "cuda_memory_allocated",
    "peak_mem", "peak_memory", "gpu_mem", "vram", "cuda_mem",
    "max_memory_allocated", "max_memory_allocated_gb", "peak_memory_active", "mem_allocated",
    "memory_usage", "mem_usage", "gpu_memory_usage",
)  # fmt: skip

FIELDS: dict[str, tuple[str, float]] = {
    **dict.fromkeys(_TIMES, ("step_s", 1.0)),
    **dict.fromkeys(("ms/it", "ms/step", "ms/iter", "ms/batch"), ("step_s", 1e-3)),
    **dict.fromkeys(_RATES, ("rate", 1.0)),
    **dict.fromkeys(_TOKENS_EACH, ("tokens_per_s_per_device", 1.0)),
    **dict.fromkeys(_TOKENS, ("tokens_per_s", 1.0)),
    **dict.fromkeys(_SAMPLES, ("samples_per_s", 1.0)),
    **dict.fromkeys(_MEMORY, ("memory_bytes", 1.0)),
    **dict.fromkeys(("epoch", "train_epoch", "ep", "epochs", "轮次"), ("epoch", 1.0)),
    **dict.fromkeys(("lr", "learning_rate", "lrate", "lr/group0", "l.r", "lr_0", "optim0_lr0", "学习率"), ("lr", 1.0)),
    **dict.fromkeys(
        ("grad_norm", "gnorm", "gradient_norm", "total_grad_norm", "grad_norm/total", "gradnorm", "global_grad_norm",
         "norm"),
        ("grad_norm", 1.0),
    ),
    **dict.fromkeys(
        ("data_time", "data", "reader_cost", "data_cost", "data_loading_time", "dataloader_time", "avg_reader_cost"),
        ("data_s", 1.0),
    ),
    **dict.fromkeys(
        ("tflops", "tflop/s/device", "tflop/s/gpu", "tflops/gpu", "model_tflops_per_gpu", "tflop/s", "tflops/s",
         "throughput_per_gpu", "tflops/s/gpu", "tflops_per_gpu"),
        ("tflops", 1.0),
    ),
    **dict.fromkeys(("total_steps", "max_steps", "total_iters", "max_iters"), ("of", 1.0)),
    **dict.fromkeys(("skipped", "number_of_skipped_iterations"), ("skipped", 1.0)),
}  # fmt: skip

UNITS = {
    "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "min": 60.0, "h": 3600.0,
    "mb": 1e6, "gb": 1e9, "mib": 2.0**20, "gib": 2.0**30, "m": 1e6, "k": 1e3, "g": 1e9, "b": 1e9, "t": 1e12,
    "kib": 2.0**10, "tib": 2.0**40,
}  # fmt: skip
TIME_UNITS = frozenset({"ms", "us", "µs", "s", "sec", "secs", "seconds", "min", "h"})
MAGNITUDES = frozenset({"k", "m", "g", "b", "t"})
_MEBI = 2.0**20  # trainers that print memory without a unit print MiB

_MAIN_LOSS = frozenset({
    "loss", "losses", "train", "training", "lm", "reduced", "total", "ce", "step", "batch", "global", "actor",
    "running", "current", "language", "model", "iter", "iteration", "completed", "with", "done", "finished",
    "sft", "at", "is", "now", "local", "crossentropy", "crossentropyloss", "minibatch", "mini",
    "损失", "损失值", "训练损失",
})  # fmt: skip
_MEAN_LOSS = _MAIN_LOSS | frozenset({"avg", "avr", "average", "mean", "smoothed", "ema"})
_NOT_TRAINING = re.compile(r"val|eval|test|valid|dev|epoch|best|scale|scaler|heldout|holdout|验证|测试", re.I)
_HELD_OUT = re.compile(r"val|eval|test|valid|dev\b|验证|测试", re.I)
_LOSS = re.compile(r"(?:^|[^a-z])loss(?:es)?(?:$|[^a-z])|loss$|^loss|crossentropy$|损失", re.I)
_ABBREVIATED_LOSSES = {"trl": "loss", "tel": "held_out"}
_KEY_UNIT = re.compile(r"(.*?)(?:_in_(s|ms)|_(ms|us|sec|secs|seconds|s))$")
_AMOUNTS = frozenset(
    {"words", "tokens", "samples", "s", "ms", "sec", "seconds", "images", "sequences"}
)  # words/batch is no batch
_NO_COUNT = frozenset({  # before a counter's name: it tells of another thing, or is the name of a function
    "micro", "max", "warmup", "total", "num", "epoch", "after", "before", "per", "every", "val", "eval", "save", "log",
    "start", "end", "first", "final",
})  # fmt: skip
_FILLER = frozenset({
    "current", "finished", "completed", "now", "the", "latest", "avg", "average", "mean", "curr", "cur",
    "last",
})  # fmt: skip


class Meaning(NamedTuple):
    """`field` of Progress (or `rate`, `counter`, `held_out`, `other_loss`), the factor to its unit, and the rank:
    of several claims to one field the one of highest rank is taken."""

    field: str
    factor: float = 1.0
    rank: int = 1


NOTHING = Meaning("")


def normalise(key: str) -> str:
    return re.sub(r"^(train(?:ing)?)\.", r"\1/", re.sub(r"[\s\-]+", "_", key.strip(" .-_").lower()))


@lru_cache(maxsize=4096)
def meaning(key: str, unit: str, joined: bool) -> Meaning:
    """What `key` (as printed, a unit in brackets cut off into `unit`) stands for; `joined` if by `:` or `=`."""
    name = normalise(key)
    if _LOSS.search(name) or name in _ABBREVIATED_LOSSES:
        return _loss(name)
    head, _, tail = name.rpartition("/")
    if head and _HELD_OUT.match(head):
        return NOTHING
    if head.startswith("critic"):
        return NOTHING
    if head.startswith("tim"):  # timing_s/step, time/forward
        return Meaning("step_s", _unit_factor("step_s", unit.lower())) if tail in COUNTERS else NOTHING
    if normalise(unit) in FIELDS and "/" in unit:  # tokens per GPU (tokens/s/GPU)
        return Meaning(*FIELDS[normalise(unit)])
    if name in COUNTERS:
        return _counter(name, unit, joined)
    return _field(name, unit) or _field(tail, unit) or _counter(name, unit, joined)


def _loss(name: str) -> Meaning:
    name = name.replace("cross_entropy", "crossentropy")
    if _ABBREVIATED_LOSSES.get(name) == "loss":
        return Meaning("loss", rank=2)
    if _NOT_TRAINING.search(name) or name in _ABBREVIATED_LOSSES:
        return Meaning("held_out") if _HELD_OUT.search(name) or name in _ABBREVIATED_LOSSES else NOTHING
    words = set(re.split(r"[_/.\s]+", name)) - {""}
    if words <= _MAIN_LOSS:
        whole = 4 if "reduced" in words else 3 if "total" in words or words == {"loss"} else 2
        return Meaning("loss", rank=whole)
    return Meaning("loss", rank=1) if words <= _MEAN_LOSS else Meaning("other_loss")


def _field(name: str, unit: str) -> Meaning | None:
    words = name.split("_")
    while words and words[0] in _FILLER and "_".join(words) not in FIELDS:
        words = words[1:]
    base = "_".join(words)
    scale = 1.0
    cut = _KEY_UNIT.fullmatch(base) if base not in FIELDS else None
    if cut is not None:
        base, scale = cut[1], UNITS[cut[2] or cut[3]]
        if base in COUNTERS:
            return Meaning("step_s", scale)
    if base not in FIELDS:
        return Meaning("epoch") if words and words[-1] == "epoch" else None
    field, factor = FIELDS[base]
    return Meaning(
        field, factor * scale * _unit_factor(field, unit.lower()), 2 if base == name or "curr" in base else 1
    )


def _unit_factor(field: str, unit: str) -> float:
    if field == "memory_bytes":
        return UNITS.get(unit, _MEBI if not unit else 1.0) if unit not in ("m", "g") else {"m": _MEBI, "g": 1e9}[unit]
    if field in ("step_s", "data_s"):
        return UNITS[unit] if unit in TIME_UNITS or unit == "k" else 1.0
    return UNITS[unit] if unit in MAGNITUDES else 1.0


def _counter(name: str, unit: str, joined: bool) -> Meaning:
    if name in COUNTERS:
        return (
            Meaning("step_s", UNITS[unit.lower()])
            if unit.lower() in TIME_UNITS
            else Meaning("counter", 1, COUNTERS[name])
        )
    words = name.split("_")
    if len(words) > 1 and words[-1] in COUNTERS and words[0] not in _NO_COUNT:
        return Meaning("counter", 1, COUNTERS[words[-1]])
    head, _, tail = name.rpartition("/")
    counts = tail in COUNTERS and tail != "s" and head not in _AMOUNTS  # ktok/s is a rate
    return Meaning("counter", 1, COUNTERS[tail]) if counts else NOTHING

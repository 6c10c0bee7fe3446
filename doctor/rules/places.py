"""Where a stack stands: the innermost frame that says what a rank is doing. Patterns are data. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from doctor.evidence.rank_table import Frame
from doctor.evidence.stacks import Stack, Thread

Kind = Literal[
    "collective", "p2p", "rendezvous", "teardown", "dataloader", "checkpoint", "compile", "file_lock", "gil",
    "exception", "gpu", "backward", "sleep", "thread", "subprocess", "logging", "gc", "python", "idle", "proxy",
    "openmp",
]  # fmt: skip

# Kinds in which a rank waits for its peers: it is a victim there, not the culprit.
AT_PEERS: frozenset[str] = frozenset({"collective", "p2p", "rendezvous"})

# A path below a package: the folders above it are the machine's, such as /data/users, and tell nothing.
_IN_PACKAGE = r"(?: |-packages/|/src/)(?:[^/ ]+/)*"
# (kind, pattern over `function file`): the innermost frame with a match decides; of one frame, the first row.
_PATTERNS: Sequence[tuple[Kind, str]] = (
    (
        "exception",
        r"^(?:\w+\.)?(?:post_mortem|set_trace|interaction|cmdloop|print_exception|format_exc)\b.*(?:pdb|"
        r"traceback|cmd)",
    ),
    ("exception", r" (?:.*/)?(?:pdb|bdb|traceback)\.py$"),
    (
        "teardown",
        r"^(?:\w+\.)*(?:destroy_process_group|_exit_function|_run_finalizers|_shutdown|_python_exit|"
        r"abort\w*|ncclCommAbort|ncclCommDestroy|ncclCommFinalize)\b",
    ),
    (
        "rendezvous",
        r"^(?:\w+\.)*(?:init_process_group|rendezvous\w*|next_rendezvous|_create_c10d_store|"
        r"_store_based_barrier|_tcp_rendezvous_handler|_env_rendezvous_handler|store_based_barrier|"
        r"_new_process_group_helper|init_device_mesh|TCPStore\w*)\b",
    ),
    ("rendezvous", r"^(?:\w+::)*TCPStore|^c10d::.*Store|^ncclCommInitRank|^bootstrap(?:Init|AllGather|Send|Recv)"),
    (
        "p2p",
        r"^(?:\w+\.)*(?:i?send|i?recv|batch_isend_irecv|send_object_list|recv_object_list|_wait_batch_p2p|"
        r"sorted_batch_p2p|_batch_p2p)\b.*(?:distributed|pipelining|schedules|p2p)",
    ),
    (
        "collective",
        r"^(?:\w+\.)*(?:all_reduce|reduce|broadcast\w*|all_gather\w*|_all_gather_base|gather\w*|scatter\w*|"
        r"reduce_scatter\w*|_reduce_scatter_base|all_to_all\w*|barrier|monitored_barrier|all_gather_object|"
        r"allgather\w*|gather_object|scatter_object_list|wait_tensor|allreduce|_sync_params|_verify_param_shape\w*|"
        r"_sync_module_states)\b .*(?:distributed|c10d|functional_collectives|deepspeed/(?:comm|runtime/zero)|mpu"
        r"|horovod)",
    ),
    ("collective", r"^(?:c10d::|gloo::|ncclAllReduce|pncclAll|ncclGroupEnd|c10d_)"),
    (
        "collective",
        r"^(?:\w+\.)*(?:_reduce_grads|unshard|wait_for_unshard|_all_gather_\w+|foreach_all_gather\w*|"
        r"foreach_reduce\w*|synchronize_\w+|_finalize_backward) .*(?:fsdp|ddp|tensor/parallel)",
    ),
    ("file_lock", r"(?:file_baton|filelock|fasteners|portalocker|lockfile)|^(?:\w+\.)*(?:flock|lockf)\b|^flock_lock"),
    ("compile", r"(?:_inductor|_dynamo|/triton/|torch/_functorch|cpp_extension|torch/fx/|nvrtc|async_compile)"),
    (
        "checkpoint",
        r"(?:torch/serialization|distributed/checkpoint|safetensors|checkpointing\.py|pickle\.py|"
        r"save_checkpoint)|^(?:\w+\.)*(?:save|_save|save_checkpoint|save_pretrained|save_model|"
        r"_save_checkpoint|load_checkpoint|write_checkpoint)\b",
    ),
    (
        "dataloader",
        rf"(?:utils/data/|{_IN_PACKAGE}data(?:loader|set|sets|pipe)?/\S*\.py|data_?loader|iterators\.py|"
        r"_?dataset\.py|multiprocessing/connection|multiprocessing/queues|webdataset|tensorflow/python/data|"
        r"\bgrain/|/dali/)|^(?:\w+\.)*(?:_next_data|_try_get_data|__getitem__|get_batch|fetch|next_batch|"
        r"load_batch|_get_batch)\b",
    ),
    (
        "gpu",
        r"^(?:cu[A-Z]\w*|cuda[A-Z]\w*|hip[A-Z]\w*|_local_scalar_dense\w*|at::cuda|c10::cuda\w*)|"
        r"^(?:\w+\.)*synchronize\b.*(?:cuda|npu|xpu|hip)",
    ),
    ("gil", r"^(?:take_gil|PyEval_RestoreThread|PyGILState_Ensure|PyEval_AcquireThread|drop_gil)\b"),
    ("proxy", r"^ncclProxy(?:GetPostedOps|Progress|Service)"),
    ("openmp", r"^(?:__kmp_|_INTERNAL_\w*kmp|GOMP_|gomp_)"),
    ("gc", r"^(?:\w+\.)*(?:gc_collect\w*|collect)\b.*gc"),
    ("backward", r"^(?:\w+\.)*(?:_engine_run_backward|THPEngine_run_backward)\b|^torch::autograd::Engine"),
    ("subprocess", r" (?:.*/)?subprocess\.py$"),
    ("logging", r"(?:wandb|tensorboard|mlflow|/logging/|comet_ml)"),
)
# Frames that only say how a thread waits: the caller says why.
_LIBRARY = re.compile(
    r"(?:site-packages|dist-packages|/lib/python3|lib64/|^(?:torch|threading|queue|contextlib|selectors|multiprocessing|"
    r"concurrent|asyncio|runpy|importlib|socket|ssl|subprocess|functools|deepspeed|accelerate|transformers|lightning|"
    r"pytorch_lightning|fairseq|fairseq_cli|megatron|jax|numpy|click|workloads/common)(?:/|\.py)|\.so|<frozen|<string>|^$"
    r"|/torch/(?:distributed|nn|optim|utils|autograd|cuda|_\w+)/)"  # built from source
)
# How Python waits for another thread: any other frame tells more.
_THREAD_WAIT = re.compile(
    r"^(?:\w+\.)*(?:get|put|join|result|exception|wait|acquire|_wait_for_tstate_lock|shutdown) "
    r"(?:.*/)?(?:queue|threading|concurrent/futures/\w+)\.py$"
)
_COMPILED = [(kind, re.compile(pattern)) for kind, pattern in _PATTERNS]
_HELPERS = re.compile(
    r"tqdm|_monitor|watchdog|TensorBoard|wandb|fsspec|asyncio|ThreadPool|pin_memory|QueueFeeder|InductorSubproc|dumper|"
    r"recorder|heartbeat|pt_nccl|ncclProxy|cuda-EvtHandlr|metrics",
    re.I,
)

_NOTHING_SAID: frozenset[Kind] = frozenset({"backward", "python", "thread", "proxy", "idle"})


@dataclass(frozen=True)
class Place:
    """What a rank is doing, and the frames that tell."""

    kind: Kind
    frame: Frame | None  # that decided
    user: Frame | None  # innermost frame of the user's own code
    op: str = ""  # of a collective or p2p: the function

    @property
    def waits_for_peers(self) -> bool:
        return self.kind in AT_PEERS

    @property
    def line(self) -> str:
        """`step (train.py:23)`: the place for a person."""
        frame = self.user or self.frame
        return str(frame) if frame else "no frame"


def place_of(stack: Stack) -> Place:
    """Where the process stands: its main thread; an autograd thread where main waits for the backward pass."""
    place = place_of_thread(stack.main)
    if place.kind == "backward":
        for thread in working_threads(stack):
            inner = place_of_thread(thread)
            if thread is not stack.main and inner.frame and inner.kind not in _NOTHING_SAID:
                return Place(inner.kind, inner.frame, inner.user or place.user, inner.op)
    return place


def place_of_thread(thread: Thread) -> Place:
    """Where one thread stands; `python` when no frame is telling, `idle` without frames."""
    user = next((frame for frame in thread.frames if frame.name != "?" and is_user_code(frame)), None)
    for frame in thread.frames:
        kind = kind_of(frame)
        if kind is not None:
            op = bare_name(frame) if kind in AT_PEERS else ""
            return Place(kind, frame, user, op)
    if not thread.frames:
        return Place("idle", None, None)
    innermost = thread.frames[0]
    if _THREAD_WAIT.search(f"{innermost.name} {innermost.filename}"):
        return Place("thread", innermost, user)
    return Place("sleep" if "sleep" in innermost.name else "python", innermost, user)


def kind_of(frame: Frame) -> Kind | None:
    text = f"{frame.name} {frame.filename}"
    return next((kind for kind, pattern in _COMPILED if pattern.search(text)), None)


def is_user_code(frame: Frame) -> bool:
    """Whether a frame is the user's: not of the standard library, a package, or native code."""
    return bool(frame.line) and not _LIBRARY.search(frame.filename)


def bare_name(frame: Frame) -> str:
    return frame.name.rsplit(".", 1)[-1].rsplit("::", 1)[-1]


def spot(frame: Frame) -> str:
    """The same words for a line, however the tool that took the stack writes paths and qualified names."""
    return f"{bare_name(frame)} ({PurePath(frame.filename).name}:{frame.line})"


def working_threads(stack: Stack) -> list[Thread]:
    """The threads that matter: main and autograd's; idle helpers (pin memory, tqdm, asyncio, watchdogs) are dropped."""
    main = stack.main
    return [
        thread
        for thread in stack.threads
        if thread is main or (thread.frames and not _HELPERS.search(" ".join((thread.name, *map(str, thread.frames)))))
    ]

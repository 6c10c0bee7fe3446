"""Distributed checkpoints: each rank writes its shards, any mesh reads them, and only a complete one counts.

DIR/step-00000020/            torch.distributed.checkpoint's files
DIR/step-00000020/complete    written last, by atomic rename
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor

from workloads.common.model import unwrapped

MARKER = "complete"
_BY_NAME = StateDictOptions(
    flatten_optimizer_state_dict=True
)  # entries keyed by parameter name: any mesh finds its own


def training_state(
    parts: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], step: int
) -> dict[str, Any]:
    """Parameters and optimizer state of all parts under their global names, and the number of finished steps."""
    model: dict[str, Any] = {}
    optimizer: dict[str, Any] = {}
    for part, its_optimizer in zip(parts, optimizers, strict=True):
        model.update(get_model_state_dict(part))
        optimizer.update(get_optimizer_state_dict(part, _inner(its_optimizer), options=_BY_NAME))
    return {"model": model, "optimizer": optimizer, "step": step}


def _inner(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """ZeRO-1 and local SGD wrap the optimizer that has the state: with ZeRO-1 that of this rank's own share."""
    wrapped: torch.optim.Optimizer = getattr(optimizer, "optim", optimizer)
    return wrapped


def restore(parts: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], path: Path) -> int:
    """Load what `path` holds into parts and optimizers; returns the number of finished steps."""
    state = training_state(parts, optimizers, 0)
    state_dict_loader.load(state, checkpoint_id=path)
    partial = StateDictOptions(strict=len(parts) == 1)
    for part, optimizer in zip(parts, optimizers, strict=True):
        set_model_state_dict(part, state["model"], options=partial)
        set_optimizer_state_dict(part, _inner(optimizer), state["optimizer"], options=_BY_NAME)
    return int(state["step"])


def whole_weights(parts: Sequence[nn.Module], keep: bool) -> dict[str, Tensor]:
    """All parameters unsharded in host memory, on rank 0; a collective. One rank of each stage should `keep` them."""
    weights: dict[str, Tensor] = {}
    for part in parts:
        for name, parameter in unwrapped(part).named_parameters():
            whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            if keep:
                weights[name.replace("_orig_mod.", "")] = whole.detach().cpu()
    every: list[dict[str, Tensor] | None] = [None] * dist.get_world_size()
    dist.gather_object(weights, every if dist.get_rank() == 0 else None)
    return {name: value for found in every for name, value in (found or {}).items()}


class Checkpoints:
    """The checkpoints below `directory`; with an empty directory it does nothing."""

    def __init__(self, directory: str, keep: int, asynchronous: bool) -> None:
        self.root = Path(directory) if directory else None
        self._keep = keep
        self._committing = threading.Lock()
        # The thread that saves has collectives of its own: on training's group they would meet those of the next step.
        self._background = dist.new_group(backend="gloo") if directory and asynchronous else None
        self._pending: tuple[Path, Future[Any]] | None = None

    def complete(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        return sorted(marker.parent for marker in self.root.glob(f"step-*/{MARKER}")) if self.root else []

    def latest(self) -> Path | None:
        """The newest complete checkpoint as rank 0 sees it, so that all ranks resume from the same."""
        found = [self.complete()[-1:] if dist.get_rank() == 0 else []]
        dist.broadcast_object_list(found, src=0)
        return found[0][0] if found[0] else None

    def save(self, state: dict[str, Any]) -> None:
        """Write `state`; in the background if asked, after the one before has finished."""
        if self.root is None:
            return
        self.finish()
        path = self.root / f"step-{state['step']:08d}"
        if (path / MARKER).exists():
            return
        if self._background:
            future = _in_background(state, path, self._background)
            future.add_done_callback(lambda done: None if done.exception() else self._commit(path))
            self._pending = (path, future)
        else:
            state_dict_saver.save(state, checkpoint_id=path)
            self._commit(path)

    def finish(self) -> None:
        """Wait for a save in the background."""
        if self._pending:
            path, future = self._pending
            self._pending = None
            future.result()
            self._commit(path)  # unless the callback has been quicker

    def _commit(self, path: Path) -> None:
        """Mark `path` complete and drop the oldest beyond `keep`; rank 0's save ends when all ranks have written."""
        if dist.get_rank():
            return
        with self._committing:
            if not (path / MARKER).exists():
                draft = path / f"{MARKER}.draft"
                draft.write_text(json.dumps({"world_size": dist.get_world_size()}))
                draft.rename(path / MARKER)
            for old in self.complete()[: -self._keep]:
                shutil.rmtree(old)


def _in_background(state: dict[str, Any], path: Path, group: dist.ProcessGroup) -> Future[Any]:
    """Copies `state` before it returns, so that what is saved are the values of now."""
    future = state_dict_saver.async_save(state, checkpoint_id=path, process_group=group)
    assert isinstance(future, Future)
    return future

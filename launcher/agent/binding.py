"""What a rank is bound to, as its process shows it: its device, its CPUs, its choice of NICs. Linux's /proc."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from launcher.agent.foreign import VISIBLE, read_environment


def visible_variable(environment: Mapping[str, str]) -> str:
    """The variable by which a job's environment gives devices; Slurm sets those of all vendors beside it."""
    return next((name for name in reversed(VISIBLE) if name in environment), VISIBLE[0])


def look(pid: int, variable: str, used: Collection[str] = ()) -> dict[str, str | None]:
    """`device`, `cpus` and `hca` of a rank; empty where the process is gone.

    `variable` names the visible devices. `used` are the devices on which the driver sees the process work: where they
    are known, they count, and not what the environment says.
    """
    with suppress(OSError):
        environment = read_environment(Path(f"/proc/{pid}/environ").read_bytes())
        status = Path(f"/proc/{pid}/status").read_text()
        if not environment:  # a zombie's
            return {}
        cpus = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
        device = device_of(environment, variable)
        return {
            "device": device if not used or device in used else min(used),
            "cpus": cpus[1] if cpus else None,
            "hca": environment.get("NCCL_IB_HCA"),
        }
    return {}


def device_of(environment: Mapping[str, str], variable: str) -> str | None:
    """The visible device whose ordinal is the local rank; the only one where there is but one."""
    visible = [name for name in environment.get(variable, "").split(",") if name]
    local_rank = int(environment.get("LOCAL_RANK", "0"))
    if len(visible) == 1:
        return visible[0]
    return visible[local_rank] if local_rank < len(visible) else None

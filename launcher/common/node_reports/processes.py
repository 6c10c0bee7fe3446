"""What a process waits for in the kernel: /proc/PID/stack, /proc/PID/wchan, `ps -o pid,stat,wchan`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_FRAME = re.compile(
    r"^\s*\[<(?:0|[0-9a-f]+)>\]\s+(?P<function>[\w.]+)(?:\+0x[0-9a-f]+/0x[0-9a-f]+)?(?: \[(?P<module>\w+)\])?",
    re.MULTILINE,
)
_CAUSES: tuple[tuple[str, str], ...] = (
    (r"^(?:rpc_|nfs\d*_|__rpc|nfs_)|^sunrpc$|^nfsv?\d*$", "nfs"),
    (r"^(?:uvm_|nv_|nvidia_|os_acquire|_nv\d|nvswitch)|^nvidia", "nvidia driver"),
    (r"^(?:ll_|cl_|ldlm_|ptlrpc_|osc_)|^(?:lustre|ptlrpc|osc)$", "lustre"),
    (r"^(?:ceph_|gpfs|cxi|fuse_|request_wait_answer)|^(?:ceph|fuse|mmfs\w*)$", "network or user file system"),
    (r"^(?:rwsem_|down_|mutex_|__mutex|mmap_|khugepaged)", "kernel memory lock"),
    (r"^(?:io_schedule|wait_on_page|folio_wait|blk_|wait_on_buffer|jbd2_|xfs_|ext4_|balance_dirty)", "local disk"),
    (r"^(?:ib_|mlx5_|uverbs_|rdma_)|^(?:mlx5_\w+|ib_\w+)$", "network adapter driver"),
)
_NORMAL = re.compile(
    r"^(?:0|-|futex_|do_poll|poll_schedule|ep_poll|do_epoll|hrtimer_nanosleep|do_nanosleep|do_select|wait_woken|pipe_|unix_|inet_|sk_wait|do_wait|do_sys_poll|sigsuspend)"
)


@dataclass(frozen=True)
class KernelWait:
    """A process in uninterruptible sleep or another state, with the function that it waits in and what that means."""

    pid: int | None
    state: str | None
    function: str
    module: str | None
    cause: str | None

    @property
    def stuck(self) -> bool:
        return self.state == "D" or (self.state is None and self.cause is not None)


def wait_cause(function: str, module: str | None = None) -> str | None:
    """Which part of the kernel a function or module belongs to; None for waits that are normal or not known."""
    if _NORMAL.match(function) and not module:
        return None
    for pattern, cause in _CAUSES:
        if re.search(pattern, function) or (module and re.search(pattern, module)):
            return cause
    return None


def frames_of(text: str) -> list[tuple[str, str]]:
    """(function, module or an empty text) of the frames in a /proc/PID/stack, innermost first."""
    return [(m["function"], m["module"] or "") for m in _FRAME.finditer(text)]


def parse_stack(text: str) -> KernelWait | None:
    """/proc/PID/stack: the first frame with a cause, top frame otherwise; None without frames."""
    frames = frames_of(text)
    if not frames:
        return None
    top, module = frames[0]
    causes = [cause for function, part in frames if (cause := wait_cause(function, part or None))]
    return KernelWait(None, None, top, module or None, causes[0] if causes else None)


def parse_wchan_table(text: str) -> list[KernelWait]:
    """`ps -o pid,stat,wchan` with or without its header; with one, in any order of columns and with others."""
    if header := re.search(r"^(?=.*\bPID\b)(?=.*\bS(?:TAT)?\b).*\bWCHAN\b.*$", text, re.MULTILINE):
        return list(_below(header[0].split(), text[header.end() :].splitlines()))
    lines = re.finditer(
        r"^\s*(?P<pid>\d+)\s+(?P<state>[A-Z])\S*\s+(?P<function>[\w.-]+)(?:[ \t].*)?$", text, re.MULTILINE
    )
    return [KernelWait(int(m["pid"]), m["state"], m["function"], None, wait_cause(m["function"])) for m in lines]


def _below(names: Sequence[str], lines: Sequence[str]) -> Iterator[KernelWait]:
    """Rows below a header; the last column (a command) may hold blanks."""
    for line in lines:
        row = dict(zip(names, line.split(maxsplit=len(names) - 1), strict=False))
        state, function = row.get("STAT", row.get("S", "")), row.get("WCHAN", "")
        if row.get("PID", "").isdecimal() and state and function:
            yield KernelWait(int(row["PID"]), state[0], function, None, wait_cause(function))

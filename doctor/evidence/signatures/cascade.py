"""Lines of victims, and of those who end others: closed connections, signals, launchers' reports, schedulers."""

from __future__ import annotations

_PYTHON = r"^(?:E  )?\s*(?P<error>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout|Exit))(?:: (?P<message>.*))?$"
_REMOTE = r"(?:.{0,200}remote=\[(?P<peer>[\w.:%-]+)\]:\d+.{0,9})?"  # of torch's store
_CRASH = r"(?P<what>Segmentation fault|Bus error|Illegal instruction|Floating.point exception)"

ROWS: list[tuple[str, str, str]] = [
    (
        "peer_closed",
        "onnection closed by",
        r"[Cc]onnection closed by (?:remote )?peer \[?(?P<peer>[\w.:%-]+?)\]?(?:[<:](?P<port>\d+)>?)?(?:\s|$)",
    ),
    (
        "peer_closed",
        "Call to recv",
        r"Call to recv(?:Msg)? from (?P<peer>[\w.:%\[\]-]+?)<(?P<port>\d+)> failed ?: ?(?P<error>.*)",
    ),
    (
        "peer_closed",
        "Call to send",
        r"Call to send(?:Msg)? to (?P<peer>[\w.:%\[\]-]+?)<(?P<port>\d+)> failed ?: ?(?P<error>.*)",
    ),
    ("peer_closed", "socketProgress", r"socketProgress\w*: (?P<error>Call to \w+ .*failed.*)"),
    ("peer_closed", "onnection reset by peer", r"(?P<error>Connection reset by peer)(?: \[?(?P<peer>[\w.:%-]+)\]?)?"),
    ("peer_closed", "roken pipe", r"(?P<error>Broken pipe)"),
    ("peer_closed", "ailed to recv, got 0 bytes", rf"{_REMOTE}(?P<error>[Ff]ailed to recv, got 0 bytes)"),
    ("peer_closed", "recvValue failed", rf"(?P<error>recvValue failed){_REMOTE}"),
    ("peer_closed", "was likely closed", r"(?P<error>Connection was likely closed)"),
    ("peer_closed", "Remote daemon", r"Remote daemon\s*:.*\bon node (?P<peer>\S+)"),
    ("peer_closed", "tasks are unhealthy", r"tasks are unhealthy.*?/(?P<peer>task:\d+)"),
    ("remote_error", "ncclRemoteError", r"(?P<error>ncclRemoteError)"),
    ("remote_error", "remote process exited", r"(?P<error>remote process exited or there was a network error)"),
    ("remote_error", "operation=Connect", r"(?P<error>Error encountered progressing operation=Connect)"),
    ("remote_error", "Proxy Call to rank", r"(?P<error>Proxy Call to rank \d+ failed)"),
    ("remote_error", "RAS", r"(?P<error>peer.*(?:dead|unreachable).*RAS.*|RAS.*(?:PEER_DEAD).*)"),
    ("sent_sigterm", "closing signal SIGTERM", r"Sending process (?P<pid>\d+) closing signal SIGTERM"),
    ("got_signal", "death signal", r"Received (?P<signal>\d+) death signal"),
    ("got_signal", "got signal: ", r"got signal: (?P<signal>\d+)"),
    ("got_signal", "Received signal", r"Received signal:? ?(?P<signal>\d+|SIG\w+)"),
    (
        "rank_ended",
        "failed (exitcode",
        r"failed \(exitcode: (?P<status>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)",
    ),
    (
        "rank_status",
        "exitcode",
        r"exitcode\s*:\s*(?P<status>-?\d+)(?: \((?P<name>SIG\w+)\))?(?:,? ?\(?pid:? ?(?P<pid>\d+))?",
    ),
    ("rank_gone", "crashed with exit code", r"Rank (?P<rank>\d+) crashed with exit code (?P<status>-?\d+)"),  # composer
    (
        "rank_gone",  # Lightning
        "terminated with code",
        r"Child process with PID (?P<pid>\d+) terminated with code (?P<status>-?\d+)",
    ),
    (
        "rank_gone",  # torch.multiprocessing.spawn
        "terminated with",
        r"process (?P<rank>\d+) terminated with (?:signal (?P<signal>SIG\w+)|exit code (?P<status>\d+))",
    ),
    ("rank_gone", "exits with return code", r"exits with return code = (?P<status>-?[1-9]\d*)"),  # DeepSpeed
    ("rank_gone", "died with <Signals", r"died with <Signals\.(?P<signal>SIG\w+): \d+>"),  # accelerate
    (
        "remote_error",
        "OFI poll failed",
        r"OFI poll failed.*(?P<error>PTLTE_NOT_FOUND)",  # Slingshot: the peer's endpoint is gone
    ),
    ("report_rank", "local_rank", r"rank\s*:\s*(?P<rank>\d+)\s*\(local_rank:?\s*(?P<local>\d+)\)"),
    ("report_host", "host", r"^\s*host\s*:\s*(?P<name>[\w.-]+)\s*$"),
    (
        "slurm_cancelled",
        "CANCELLED",
        r"\*\*\* (?:STEP|JOB) (?P<job>\S+) ON (?P<node>\S+) CANCELLED AT (?P<time>\S+?)(?: DUE TO "
        r"(?P<reason>[A-Z ]+))?(?:, [^*]*)?(?: \*\*\*|$)",
    ),
    (
        "task_exit",
        "srun: error",
        r"srun: error: (?P<node>\S+): tasks? (?P<tasks>[\d,-]+): "
        r"(?P<what>Exited with exit code \d+|Killed|Terminated|Aborted|Segmentation fault|Bus error|Out Of Memory)",
    ),
    (
        "mpi_exit",
        "exited on signal",
        r"rank (?P<rank>\d+) with PID (?P<pid>\d+) on node (?P<node>\S+) exited on signal (?P<signal>\d+)",
    ),
    (
        "crashed",
        "Fatal Python error",
        rf"Fatal Python error: {_CRASH}",
    ),
    (
        "crashed",
        "Signal: ",
        rf"^(?:\[[\w.-]+:\d+\] )?Signal: {_CRASH}",
    ),
    ("mpi_exit", "ORTE daemon has unexpectedly", r"(?P<error>ORTE daemon has unexpectedly failed)"),
    ("ray_memory", "emory on the node", r"[Mm]emory on the node \(IP: (?P<node>[\w.:-]+)(?P<what>.*)"),
    ("ray_memory", "running low on memory", r"(?P<what>node running low on memory)"),
    (
        "ray_memory",
        "killed due to memory pressure",
        r"(?P<what>[1-9]\d* \w+.{0,30} killed due to memory pressure)(?:.* at node \(.*?IP: (?P<node>[\w.:-]+))?",
    ),
    (
        "ray_died",
        "died or was killed while executing",
        r"(?P<error>worker) died or was killed while executing.*Worker IP address: (?P<node>[\w.:-]+)",
    ),
    ("ray_died", "died unexpectedly", r"(?P<error>(?:[Aa]ctor|[Ww]orker)(?: proc)?(?: [\w.-]+)?) died unexpectedly"),
    *(
        (
            "pod_state",
            word,
            rf"^(?:\S+\s+)?(?P<pod>[a-z0-9][a-z0-9.-]*)\s+\d+/\d+\s+(?P<state>{word}\S*)\s+\d",
        )
        for word in ("CrashLoopBackOff", "Pending", "ImagePullBackOff", "ErrImagePull", "ContainerCreating", "Init:")
    ),
    ("pod_waits", "FailedScheduling", r"FailedScheduling\b.*?(?P<what>\d+/\d+ nodes are available.*)"),
    ("pod_waits", "pull image", r"(?P<what>Failed to pull image \"?[^\s\"]+)"),
    ("pod_waits", "FailedMount", r"FailedMount\b.*?(?P<what>(?:MountVolume|Unable to attach).*)"),
    ("pod_waits", "ImagePullBackOff", r"(?P<what>ImagePullBackOff)"),
    ("defunct", "<def", r"^(?:\S+\s+)?\s*(?P<pid>\d+)\s.*?\bpython[\d.]*\]? <def"),  # ps cuts at the width
    ("node_lost", "NodeNotReady", r"(?P<error>Node (?P<node>\S+) status is now: NodeNotReady)"),
    (
        "evicted",
        "vict",
        r"(?P<what>\d+/\d+ \w+ (?:are|is) evicted|Evicted\b.*|[Tt]he node was low on resource.*"
        r"|[Mm]arking for deletion Pod \S+)",
    ),
    ("node_lost", "ODE FAIL", r"(?P<error>NODE FAIL\w*|NODE_FAIL)(?: ON (?P<node>\S+))?"),
    ("traceback", "Traceback", r"Traceback \(most recent call last\):"),
    # Last: what nothing above names.
    ("python_error", "Err", _PYTHON),
    ("python_error", "Exception", _PYTHON),
]

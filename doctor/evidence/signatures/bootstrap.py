"""Lines about how ranks find each other: NCCL's bootstrap, torch's store and rendezvous, gloo's mesh, names, ports."""

from __future__ import annotations

_ADDRESS = r"(?P<address>[\w.:%\[\]-]+?)<(?P<port>\d+)>"
_ERROR = r"(?P<error>[A-Z][A-Za-z ]*[a-z])"

ROWS: list[tuple[str, str, str]] = [
    ("foreign_peer", "wrong magic", r"wrong magic (?P<theirs>[0-9a-f]+) != (?P<ours>[0-9a-f]+)"),
    ("foreign_peer", "magic", r"(?:unexpected|invalid|bad|mismatch\w*|different) magic\b"),
    ("foreign_peer", "Unknown command", r"\[Service thread\] Unknown command \d+"),
    (
        "exit_barrier",
        "exit barrier",
        r"(?P<error>Error waiting on exit barrier)(?:\. Elapsed: (?P<seconds>\d+(?:\.\d+)?))?",
    ),
    ("foreign_peer", "has already checked in", r"rank (?P<peer_rank>\d+) of \d+ ranks has already checked in"),
    (
        "rank_count_mismatch",
        "ismatch in rank count",
        r"mismatch in rank count from procs (?P<ours>\d+) : (?P<theirs>\d+)",
    ),
    (
        "message_truncated",
        "Message truncated",
        r"Message truncated ?: received (?P<got>\d+) bytes instead of (?P<wanted>\d+)",
    ),
    (
        "socket_family",
        "is neither AF_INET",
        r"(?:address (?P<address>\S+) )?with family (?P<family>\d+) is neither AF_INET",
    ),
    (
        "no_interface",
        "No interface found in the same subnet",
        rf"No interface found in the same subnet as remote address {_ADDRESS}",
    ),
    ("no_interface", "Address family not supported", r"[Ss]ocket creation failed ?: ?Address family not supported"),
    ("no_interface", "o socket interface found", r"[Nn]o (?:usable )?socket interface found"),
    (
        "no_interface",
        "NCCL_SOCKET_IFNAME",
        r"(?P<interface>[^\s']{1,40})' is not present on this node|NCCL_SOCKET_IFNAME.{0,200}(?:no|No|not) "
        r".{0,200}(?:match|found)",
    ),
    ("no_interface", "nable to find", r"[Uu]nable to find (?:address|interface) for:? \[?(?P<interface>[^\s\]]+)"),
    ("bind_failed", "bind", r"(?:Call to bind|bind\(?\)?).*fail\w*\s?: ?(?P<error>Cannot assign requested address)"),
    (
        "port_taken",
        "ddress already in use",
        r"(?:(?:(?<!pp)(?<!cc)(?<!py):|port: )(?P<port>\d{4,5})\b.{0,120}?)?(?:EADDRINUSE|[Aa]ddress already in use)",
    ),
    # NCCL connects: four generations of the same failure.
    (
        "connect_failed",
        "onnect",
        rf"[Cc]onnect to {_ADDRESS}(?:\([^)]*\))? (?:returned|failed)\s?:? ?(?:\d+ ?\()?{_ERROR}",
    ),
    ("connect_failed", "Couldn't connect to", r"Couldn't connect to (?P<address>[\w.-]+):(?P<port>\d+)"),  # perftest
    ("connect_failed", "exceeded", r"socket\w*Connect: exceeded (?P<error>timeouts|retries|error retry count)"),
    ("connect_failed", "Call to connect ", rf"Call to connect (?:failed|timeout) : {_ERROR}"),
    ("connect_failed", "retry count", rf"connect to {_ADDRESS} returned {_ERROR}, exceeded error retry count"),
    # torch: TCPStore and rendezvous.
    (
        "name_unknown",
        "gai error",
        r"network addresses of \((?P<address>[^,]+), (?P<port>\d+)\) cannot be retrieved \(gai error: "
        r"(?P<error>[^)]*)\)",
    ),
    (
        "name_unknown",
        "ame or service not known",
        r"(?:(?:resolve|host(?:name)?|gaierror|getaddrinfo)\D*?[:' ](?P<address>[\w.-]+))?.*Name or service not known",
    ),
    ("name_unknown", "emporary failure in name resolution", r"Temporary failure in name resolution"),
    ("name_unknown", "not resolve host", r"[Cc]ould not resolve host(?:name)?:? ?(?P<address>[\w.-]+)"),
    (
        "store_unreachable",
        "failed to connect to",
        r"client socket has failed to connect to (?:any network address of \()?\[?"
        r"(?P<address>[^\s\]:,()]+)\]?[:,] ?(?P<port>\d+)\)?(?:.*\(errno: (?P<errno>\d+) - (?P<error>[^)]*)\))?",
    ),
    (
        "store_unreachable",
        "while trying to connect",
        r"client socket has timed out after (?P<after>\w+) while trying to connect to \(?\[?"
        r"(?P<address>[^\s\]:,()]+)\]?[:,] ?(?P<port>\d+)",
    ),
    (
        "store_unreachable",
        "connection to the C10d store has failed",
        r"(?P<error>connection to the C10d store has failed)",
    ),
    (
        "store_wait_clients",
        "clients joined",
        r"[Tt]imed out after (?P<seconds>\d+) seconds waiting for clients\. (?P<joined>\d+)/"
        r"(?P<wanted>\d+) clients joined",
    ),
    (
        "store_wait_clients",
        "store based barrier",
        r"[Tt]imed out .*store based barrier on rank:? ?(?P<rank>\d+).*world_size=(?P<wanted>\d+), "
        r"(?:worker_count|num_workers_joined)=(?P<joined>\d+)",
    ),
    (
        "store_waiting",
        "Waiting in store based barrier",
        r"Waiting in store based barrier.*world_size=(?P<wanted>\d+), (?:worker_count|num_workers_joined)="
        r"(?P<joined>\d+)",
    ),
    ("store_met", "ompleted store-based barrier", r"Completed store-based barrier"),
    (
        "rendezvous_timeout",
        "endezvous",
        r"(?P<error>RendezvousTimeoutError|[Rr]endezvous(?!\.cc).*(?:timed out|timeout))",
    ),
    (
        "rendezvous_closed",
        "endezvous",
        r"(?P<error>RendezvousClosedError|RendezvousGracefulExitError|[Rr]endezvous .*(?:is|was) (?:already )?closed)",
    ),
    ("rendezvous_state", "RendezvousStateError", r"(?P<error>RendezvousStateError|RendezvousConnectionError)"),
    (
        "store_key_timeout",
        "store->get",
        r"\[(?P<me>\d+)\] is setting up \w+ communicator and retrieving \w+ from \["
        r"(?P<from>\d+)\] via c10d key-value store by key '(?P<key>[^']*)', but store->get\([^)]*\) got error: "
        r"(?P<error>.*)",
    ),
    ("store_key_timeout", "wait timeout after", r"wait timeout after (?P<ms>\d+)ms, keys: (?P<key>\S+)"),
    ("store_key_timeout", "Socket Timeout", r"(?P<error>Socket Timeout)"),
    ("store_key_timeout", "waitForInput", r"waitForInput: .*timed out after (?P<ms>\d+)ms"),
    (
        "monitored_barrier",
        "failed to pass monitoredBarrier",
        r"(?:Ranks?|Rank\(s\)) (?P<ranks>[\d, ]+?) failed to pass monitoredBarrier in (?P<ms>\d+) ms",
    ),
    (
        "monitored_barrier",
        "monitoredBarrier",
        r"(?:Rank|rank) (?P<ranks>\d+) (?:timed out|did not|successfully reached"
        r"|encountered error).*monitoredBarrier(?! .*successfully)",
    ),
    # gloo.
    ("gloo_mesh", "connectFullMesh failed", r"connectFullMesh failed with (?P<error>.*)"),
    (
        "gloo_connect",
        "pair.cc",
        r"pair\.cc:\d+\] .*?(?:connect|Connect)\w* (?:to )?(?:\[?(?P<address>[\d.]+|[0-9a-f:]+)\]?:"
        r"(?P<port>\d+))?.*(?P<error>timed out|Connection refused|No route to host|Timeout)",
    ),
    (
        "gloo_timeout",
        "Timed out waiting",
        r"Timed out waiting (?P<ms>\d+)ms for (?P<what>recv|send) operation to complete",
    ),
    (
        "loopback_interface",
        "sing",
        r"(?:Bootstrap ?: Using (?:\[0\])?lo:(?P<address>127\.\S+?|::1)<|NET/Socket ?: Using \[0\]lo:127"
        r"|NET : Using interface lo:127)",
    ),
    ("loopback_fallback", "loopback address as fallback", r"(?P<error>Using the loopback address as fallback)"),
    ("loopback_master", "MASTER_ADDR", r"MASTER_ADDR['\"]?\s?[=:]\s?['\"]?(?P<address>127\.[\d.]+|localhost|::1)"),
    ("fd_limit", "oo many open files", r"(?P<error>[Tt]oo many open files)"),
]

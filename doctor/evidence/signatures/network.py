"""Lines about the data network: InfiniBand and RoCE, sockets, plugins (OFI, UCX), GPUDirect RDMA."""

from __future__ import annotations

_EVENT = r"(?P<event>[A-Za-z][\w /-]*?)(?: ?\(\d+\))?\s*$"
_DEVICE = r"\b(?P<device>[A-Za-z][\w-]{0,40}):(?P<port>\d+)"

ROWS: list[tuple[str, str, str]] = [
    # Completion errors: 2.4-2.19, 2.20-2.28.8, from 2.28.9, 2.30.
    (
        "ib_completion",
        "ompletion",
        r"Got completion(?: from peer (?P<peer>\S+))? with (?:error|status)[ =](?:(?P<name>IBV_WC_\w+)\()?"
        r"(?P<status>\d+)\)?,?"
        r"(?: opcode[ =]\S+)?(?:.*?vendor[_ ]err(?:or)?[ =](?P<vendor>\d+))?(?:.*?localGid\s?"
        r"(?P<local_gid>[0-9a-fA-F:.]+))?"
        r"(?:.*?remoteGids?\s?(?P<remote_gid>[0-9a-fA-F:.]+))?(?:.*?hca (?P<hca>[\w-]+))?",
    ),
    (
        "ib_completion",
        "CQE",
        r"Got CQE with error(?:.*?peer (?P<peer>\S+))?.*?status=(?:(?P<name>IBV_WC_\w+)\()?(?P<status>\d+)"
        r"(?:.*?vendor[_ ]err[ =](?P<vendor>\d+))?(?:.*?hca (?P<hca>[\w-]+))?",
    ),
    (
        "ib_completion",
        "ransport retry count exceeded",
        r"[Tt]ransport (?P<name>retry count exceeded)(?: on (?P<hca>[\w-]+):\d+)?",
    ),
    (  # UCX
        "ib_completion",
        "vend ",
        r"(?P<name>Local (?:protection|QP operation|length)|Remote (?:access|operation|invalid request)"
        r"|RNR retry count exceeded|Request flushed) on (?P<hca>[\w-]+):\d+.*vend 0x(?P<vendor>[0-9a-f]+)",
    ),
    ("ib_completion", "Failed status", r"Failed status (?P<status>\d+): wr_id \d+ syndrom 0x(?P<vendor>[0-9a-f]+)"),
    ("ib_completion", "UNDELIVERABLE", r"OFI poll failed.*(?P<name>UNDELIVERABLE)"),  # Slingshot
    ("ib_completion", "Endpoint timeout", r"(?P<name>Endpoint timeout)"),
    # Asynchronous events of the adapter: up to 2.19, 2.20, from 2.23.
    ("ib_gid_change", "GID table change", rf"(?:{_DEVICE} )?(?:[Gg]ot async (?:\w+ )?event\s?: ?)?GID table changed?"),
    ("ib_port_up", "port active", rf"(?:{_DEVICE} )?[Gg]ot (?:\S+ )?async (?:\S+ )?event\s?: ?port active"),
    (
        "ib_port_error",
        "async",
        rf"(?:{_DEVICE} )?[Gg]ot (?:\S+ )?async (?:\S+ )?event\s?: ?(?P<event>port error|port down|.*\bport err\w*)",
    ),
    (
        "ib_queue_fatal",
        "async fatal event",
        rf"{_DEVICE} async fatal event on (?:QP|CQ)[^:]*: (?P<event>.*(?:access|request|queue error|CQ error).*)",
    ),
    (
        "ib_queue_fatal",
        "async",
        rf"(?:{_DEVICE} )?[Gg]ot (?:\S+ )?async (?:\S+ )?event\s?: ?"
        r"(?P<event>.*(?:access (?:error|violation)|CQ error).*)",
    ),
    ("ib_fatal_event", "async fatal event", rf"{_DEVICE} async fatal event(?: on \w+)?[^:]*: {_EVENT}"),
    (
        "ib_fatal_event",
        "async",
        rf"(?:{_DEVICE} )?[Gg]ot (?:\S+ )?async (?:\S+ )?event\s?: ?(?P<event>"
        rf"(?:local catastrophic|device fatal|.*fatal).*)",
    ),
    ("ib_async_other", "async", rf"(?:{_DEVICE} )?[Gg]ot (?:\S+ )?async (?:\S+ )?event\s?: ?{_EVENT}"),
    # Devices.
    ("ib_no_device", "No device found", r"NET/IB ?: ?No device found"),
    ("ib_no_library", "libibverbs", r"Failed to open (?P<library>libibverbs\.so\S*)"),
    (
        "ib_no_driver",
        "no userspace device-specific driver",
        r"no userspace device-specific driver found for (?P<device>\S+)",
    ),
    ("ib_open_failed", "nable to open device", r"[Uu]nable to open device (?P<device>[\w-]+)"),
    ("ib_open_failed", "ibv_open_device failed", r"ibv_open_device failed"),
    (
        "ib_link_mix",
        "incompatible with the local",
        r"Remote (?P<remote>\S+) device is incompatible with the local \S*?(?P<device>[\w-]+:\d+/\w+)",
    ),
    ("ib_device_count", "mergedDev", r"[Ll]ocal mergedDev.*(?P<local>\d+).*remote.*(?P<remote>\d+)"),
    ("ib_device_count", "umber of ", r"NET/IB.*[Nn]umber of (?:IB |net )?devices? (?:mismatch|differ)"),
    # Verbs calls. What fails and with which error tells the limit; UCX says itself that it is that of locked memory.
    ("memlock_small", "RLIMIT_MEMLOCK", r"RLIMIT_MEMLOCK is (?P<amount>\d+ bytes)"),
    ("memlock_small", "max locked memory", r"set max locked memory .*unlimited.*current: (?P<amount>\d+(?: \w+)?)"),
    (
        "verbs_failed",
        "ibv_",
        r"Call to (?P<call>ibv_\w+) failed with (?:error )?(?:(?P<number>\d+) )?(?P<error>[A-Z][A-Za-z ]*[a-z])"
        r"(?: errno (?P<errno>\d+))?"
        r"(?:.*?on dev (?P<device>[\w-]+):\d+)?(?:.*?local GID index (?P<gid_index>\d+))?(?:.*?local GID "
        r"(?P<local_gid>[0-9a-fA-F:.]+))?"
        r"(?:.*?remote GID (?P<remote_gid>[0-9a-fA-F:.]+))?",
    ),
    ("verbs_failed", "ibv_", r"(?P<call>ibv_\w+)\(.*\) failed: (?P<error>[A-Z][A-Za-z ]*[a-z])"),
    (
        "verbs_failed",
        "ibv_",
        r"(?P<call>ibv_\w+)(?:\(\))? failed\W.{0,40}?(?:: |\()(?P<error>[A-Z][a-z]+(?: [a-z]+)*)\)?",
    ),
    ("verbs_failed", "Call to ibv_", r"Call to (?P<call>ibv_\w+) failed\s*$"),  # NCCL up to 2.7, of calls that create
    (
        "queue_failed",
        "failed to create",
        r"failed to create (?:\w+ )?(?P<what>QP|CQ)\b.*: (?P<error>Cannot allocate memory)",
    ),
    ("gid_unusable", "odify QP", r"(?P<error>[Ff]ailed to modify QP (?:\w+ )?to RT[RS])"),  # perftest
    (
        "gid_unusable",
        "RoceGetVersionNum",
        r"(?P<error>read failed in ncclIbRoceGetVersionNum: [A-Z][a-z]+(?: [a-z]+)*)",
    ),
    ("memlock_limit", "max locked memory", r"^max locked memory\s+\(kbytes, -l\)\s+(?P<kilobytes>\d{1,6})\s*$"),
    (
        "efa_limit",
        "EFA",
        r"(?:NET/OFI|EFA|efa).*(?:[Cc]ould ?n.t|[Ff]ailed to|[Uu]nable to) (?:create|allocate|open|enable) "
        r"(?P<what>PD|CQ|QP|AV|endpoint|domain|protection domain|completion queue)",
    ),
    # OFI plugin (EFA, Slingshot) and other network plugins.
    (
        "ofi_completion",
        "completed with error",
        r"NET/OFI.*[Rr]equest.*completed with error\. RC: (?P<rc>-?\d+)\. Error: (?:(?P<number>\d+) \()?"
        r"(?P<error>[^).]*)",
    ),
    (  # libfabric's own line, which names the peer
        "ofi_completion",
        "Peer host id",
        r"err: (?P<rc>\d+), message: (?P<error>.*?)\s+My EFA addr.*Peer EFA addr: (?P<peer_address>\S+) "
        r"Peer host id: (?P<peer>\S+)",
    ),
    (
        "ofi_failed",
        "completed with error",
        r"NET/OFI (?P<what>Operation with NULL context completed with error)",
    ),
    (
        "ofi_resource",
        "NET/OFI",
        r"NET/OFI (?:Couldn't|Could not|Unable to|Failed to) (?:create|open|allocate|enable|bind) (?:a |an )?"
        r"(?P<what>AV|CQ|QP|PD|endpoint|domain|fabric\w*|completion queue\w*|protection domain)\b.*?RC: "
        r"(?P<rc>-?\d+),? ERROR: (?P<error>.*)",
    ),
    (
        "ofi_failed",
        "NET/OFI",
        r"NET/OFI (?!.*(?:disabling GDR|falling back|instead))"
        r"(?P<what>(?:Couldn't|Could not|Unable to|Failed to|Call to|No eligible|No provider"
        r"|Only \w+ provider|Creating |Disabling |Error|Invalid"
        r"|Initialization|.* failed).*)",
    ),
    ("plugin_failed", "NET plugin", r"[Ff]ailed to initialize any NET plugin"),
    ("plugin_failed", "not found", r"Error: network (?P<name>.+?) not found"),
    (
        "plugin_failed",
        "lugin",
        r"(?:NET|Net|COLLNET)/?[Pp]lugin ?:? ?(?P<what>.*(?:undefined symbol|wrong ELF|version .* not found"
        r"|init failed|initialization failed).*)",
    ),
    (
        "plugin_failed",
        "nccl-net",
        r"^(?P<what>.{0,300}?(?:aws-ofi-nccl|libnccl-net).{0,300}?(?:undefined symbol|initialization failed"
        r"|incompatible).*)",
    ),
    # GPUDirect RDMA.
    (
        "gdr_disabled",
        "GPU Direct RDMA",
        r"^(?!.*NET/Socket).*GPU Direct RDMA Disabled for (?P<what>HCA|GPU) (?P<index>\S+)(?: '(?P<device>[^']+)'| : "
        r"(?P<device2>\S+))?(?: / HCA (?P<hca>\d+))?(?: \(distance (?P<distance>\d+) >=? (?P<level>\d+)\))?",
    ),
    ("gdr_enabled", "GPU Direct RDMA", r"GPU Direct RDMA (?:\(\w+\) )?[Ee]nabled for (?:HCA|GPU)"),
    (
        "gdr_disabled",
        "peermem",
        r"(?P<what>(?:nvidia[_-]peermem|nv_peer_mem)[^,]*(?:not loaded|not found|is missing|unavailable))",
    ),
    (
        "gdr_register_failed",
        "dmabuf",
        r"(?P<call>ibv_reg_dmabuf_mr|DMA-?BUF|dmabuf)\S* .*(?:failed|not supported)(?: with error)?:? ?(?P<error>.*)",
    ),
    (
        "gdr_register_failed",
        "register",
        r"[Uu]nable to register (?P<call>MR)\b.*?: (?P<error>Bad address|Invalid argument|Operation not \w+)",
    ),
    # Sockets of the data path.
    ("socket_type", "wrong type", r"wrong type (?P<theirs>\d+) != (?P<ours>\d+)"),
    (
        "size_mismatch",
        "collective mismatch error",
        r"peer (?P<peer>\S+) collective mismatch error,? local size (?P<local>\d+) remote size (?P<remote>\d+)",
    ),
    (
        "size_mismatch",
        "collective mismatch error",
        r"collective mismatch error,? local size (?P<local>\d+) remote (?:size )?(?P<remote>\d+)",
    ),
    (
        "size_mismatch",
        "message truncated",
        r"NET/Socket ?: peer (?P<peer>\S+) message truncated ?: receiving (?P<remote>\d+) bytes instead of "
        r"(?P<local>\d+)",
    ),
    (
        "size_mismatch",
        "osted incorrect receive info",
        r"peer (?P<peer>\S+) posted incorrect receive info: size (?P<remote>-?\d+)",
    ),
    (
        "collective_mismatch",
        "ismatched collective detected",
        r"Mismatched collective detected.*around rank (?P<at_rank>\d+)",
    ),
    ("env_mismatch_hint", "NCCL_ALGO", r"mismatch in .*environment settings.*between ranks"),
]

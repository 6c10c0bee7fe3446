"""InfiniBand and RoCE: ibstat, ibstatus, ibdev2netdev, sysfs counters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class IbPort:
    """One port. `rate_gbps` as printed: a port that is not up shows what it would negotiate (10 or less)."""

    device: str
    port: int
    state: str
    physical: str
    rate_gbps: float
    link_layer: str
    lid: int | None = None

    @property
    def up(self) -> bool:
        """Logically active and physically linked. Only the logical state tells whether a subnet manager answered."""
        return self.state.lower() == "active" and self.physical.lower() == "linkup"


def parse_ibstat(text: str) -> list[IbPort]:
    """`ibstat`, with any number of CAs and ports, or of one port alone."""
    ports = []
    for block in re.split(r"^\s*(?:CA|Switch|Router|iWARP RNIC):? '", text, flags=re.MULTILINE)[1:]:
        device = block.partition("'")[0]
        for part in re.split(r"^\s*Port (?=\d+:)", block, flags=re.MULTILINE)[1:]:
            values = {
                key.strip().lower(): value.strip()
                for key, _, value in (line.partition(":") for line in part.splitlines()[1:])
            }
            ports.append(
                IbPort(
                    device,
                    int(part.partition(":")[0]),
                    values.get("state", "?"),
                    values.get("physical state", "?"),
                    _rate(values.get("rate", "")),
                    values.get("link layer", "?"),
                    int(values["base lid"]) if values.get("base lid", "").isdecimal() else None,
                )
            )
    return ports


def _rate(text: str) -> float:
    """The number of `100`, `40 (FDR10)` and `400 Gb/sec (4X NDR)`; 0 without one."""
    found = re.match(r"\d+(?:\.\d+)?", text)
    return float(found[0]) if found else 0.0


def parse_devinfo(text: str) -> list[IbPort]:
    """`ibv_devinfo`, which shows no rate, and the physical state only with `-v`: an active port is linked."""
    ports = []
    for block in re.split(r"^\s*hca_id:\s*", text, flags=re.MULTILINE)[1:]:
        device = block.split(maxsplit=1)[0]
        for part in re.split(r"^\s*port:\s*(?=\d)", block, flags=re.MULTILINE)[1:]:
            values = dict(re.findall(r"^\s*(\w+):\s*(\S+)", part, flags=re.MULTILINE))
            state = values.get("state", "?").removeprefix("PORT_")
            physical = values.get("phys_state", "LinkUp" if state == "ACTIVE" else "?").replace("_", "")
            lid = values.get("port_lid", "")
            layer = values.get("link_layer", "?")
            ports.append(
                IbPort(device, int(part.split()[0]), state, physical, 0.0, layer, int(lid) if lid.isdecimal() else None)
            )
    return ports


_STATUS = re.compile(r"Infiniband device '(?P<device>[^']+)' port (?P<port>\d+) status:")


def parse_ibstatus(text: str) -> list[IbPort]:
    """`ibstatus`: states come as "4: ACTIVE", rates as "200 Gb/sec (4X HDR)"."""
    heads = list(_STATUS.finditer(text))
    ports = []
    for head, end in zip(heads, [*(match.start() for match in heads[1:]), len(text)], strict=False):
        body = text[head.end() : end]
        values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in body.splitlines())}
        lid = values.get("base lid", "")
        ports.append(
            IbPort(
                head["device"],
                int(head["port"]),
                values.get("state", "?").rpartition(" ")[2],
                values.get("phys state", "?").rpartition(" ")[2],
                _rate(values.get("rate", "")),
                values.get("link_layer", "?"),
                int(lid, 16) if re.fullmatch(r"0x[0-9a-f]+", lid) else None,
            )
        )
    return ports


def parse_ibdev2netdev(text: str) -> dict[str, tuple[str, bool]]:
    """Device → (interface, interface is up). Up is the IP interface: InfiniBand without IPoIB always says Down."""
    lines = re.finditer(
        r"^(?:[0-9a-f:.]+ )?(\S+) (?:\(.*\) .*)?port \d+ (?:\(\w+\) )?==> (\S+) \((Up|Down)\)", text, re.MULTILINE
    )
    return {match[1]: (match[2], match[3] == "Up") for match in lines}


@dataclass(frozen=True)
class IbCounter:
    device: str
    port: int
    name: str
    value: int


_COUNTER = re.compile(
    r"(?:.*/)?infiniband/(?P<device>[^/]+)/ports/(?P<port>\d+)/(?:hw_)?counters/(?P<name>\w+)"
    r"\s*[:= ]\s*(?P<value>\d+)\s*$",
    re.MULTILINE,
)
# Counters of a fabric that loses or reorders packets (RoCE: PFC/ECN; InfiniBand: cable, optics).
LOSS_COUNTERS: Mapping[str, str] = {
    "local_ack_timeout_err": "acknowledgements that came too late",
    "out_of_sequence": "packets that came out of order",
    "packet_seq_err": "packets of a wrong sequence number",
    "implied_nak_seq_err": "responses that were missing",
    "rnr_nak_retry_err": "receivers that were not ready",
    "roce_adp_retrans": "adaptive retransmissions",
    "roce_slow_restart": "slow restarts after loss",
    "rx_icrc_encapsulated": "packets of a wrong checksum",
    "rx_discards_phy": "packets dropped on the way in",
    "tx_discards_phy": "packets dropped on the way out",
    "rx_crc_errors_phy": "packets of a wrong checksum",
    "symbol_error": "symbol errors of the cable",
    "link_downed": "times that the link went down",
    "link_error_recovery": "link recoveries",
    "port_rcv_errors": "packets received with errors",
    "port_xmit_discards": "packets dropped on the way out",
    "excessive_buffer_overrun_errors": "buffer overruns",
    "local_link_integrity_errors": "link integrity errors",
}


# perfquery and ibqueryerrors name the same counters otherwise.
_PERFQUERY: Mapping[str, str] = {
    "SymbolErrorCounter": "symbol_error",
    "LinkDownedCounter": "link_downed",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "PortRcvErrors": "port_rcv_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
}
_NAMED = re.compile(rf"\b(?P<name>{'|'.join([*_PERFQUERY, *LOSS_COUNTERS])})\b(?:\.{{2,}}|[\s:=])*(?P<value>\d+)")
_LINK = re.compile(r"^(?:link |CA ')?(?P<device>[a-z][\w]*\d)(?:/|' port |:)(?P<port>\d+)", re.MULTILINE)


def parse_counters(text: str) -> list[IbCounter]:
    """Counters with their sysfs path (`grep . /sys/class/infiniband/*/ports/*/hw_counters/*`), else by name, as of
    perfquery, ibqueryerrors, `rdma statistic` or ethtool; the device is then the last one named before, or `?`."""
    found = [IbCounter(m["device"], int(m["port"]), m["name"], int(m["value"])) for m in _COUNTER.finditer(text)]
    if found:
        return found
    links = list(_LINK.finditer(text))
    for match in _NAMED.finditer(text):
        link = next((one for one in reversed(links) if one.start() < match.start()), None)
        device, port = (link["device"], int(link["port"])) if link else ("?", 0)
        found.append(IbCounter(device, port, _PERFQUERY.get(match["name"], match["name"]), int(match["value"])))
    return found

"""lspci -vvv: PCIe access control (ACS) and link width and speed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_REDIRECTS = ("ReqRedir+", "CmpltRedir+", "UpstreamFwd+")
_DEVICE = re.compile(r"^(?P<slot>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]) (?P<name>\S.*)$")
_SPEED = re.compile(r"LnkSta:\s+Speed (?P<speed>\d+(?:\.\d+)?)GT/s(?: \(\w+\))?, Width x(?P<width>\d+)")
_CAPABLE = re.compile(r"LnkCap:.*?Speed (?P<speed>\d+(?:\.\d+)?)GT/s, Width x(?P<width>\d+)")


@dataclass(frozen=True)
class AcsControl:
    """One ACSCtl line. Redirection sends peer-to-peer traffic up to the root; source validation alone does not."""

    slot: str | None
    name: str | None
    flags: str
    line: int

    @property
    def redirects(self) -> bool:
        return any(flag in self.flags for flag in _REDIRECTS)

    @property
    def source_validation_only(self) -> bool:
        return "SrcValid+" in self.flags and not self.redirects


@dataclass(frozen=True)
class PciLink:
    """Link of a device: speeds in GT/s, widths in lanes; None where the text does not say."""

    slot: str
    name: str
    speed: float
    width: int
    capable_speed: float | None
    capable_width: int | None

    @property
    def narrow(self) -> bool:
        return self.capable_width is not None and self.width < self.capable_width


def parse_acs(text: str) -> list[AcsControl]:
    """All ACSCtl lines, with their device where the text names one; `line` counts from 1."""
    found = []
    slot = name = None
    for number, line in enumerate(text.splitlines(), start=1):
        if device := _DEVICE.match(line):
            slot, name = device["slot"], device["name"]
        elif control := re.search(r"ACSCtl:\s*(?P<flags>\S.*?)\s*$", line):
            found.append(AcsControl(slot, name, control["flags"], number))
    return found


def parse_links(text: str) -> Sequence[PciLink]:
    """Link state of every device that shows one."""
    links = []
    slot = name = ""
    capable: re.Match[str] | None = None
    for line in text.splitlines():
        if device := _DEVICE.match(line):
            slot, name, capable = device["slot"], device["name"], None
        elif found := _CAPABLE.search(line):
            capable = found
        elif (state := _SPEED.search(line)) and slot:
            links.append(
                PciLink(
                    slot,
                    name,
                    float(state["speed"]),
                    int(state["width"]),
                    float(capable["speed"]) if capable else None,
                    int(capable["width"]) if capable else None,
                )
            )
    return links

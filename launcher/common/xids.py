"""NVIDIA's Xid numbers: what each means and what to do, as data (source: NVIDIA "XID Errors" documentation)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

XidKind = Literal["ecc", "fallen_off", "gsp", "nvlink", "application", "teardown", "hardware", "driver"]


CODES: Mapping[XidKind, str] = {  # verdict code; of all other kinds gpu.xid
    "ecc": "gpu.ecc",
    "fallen_off": "gpu.fallen_off",
    "gsp": "gpu.gsp_timeout",
    "nvlink": "gpu.nvlink_error",
}


@dataclass(frozen=True)
class XidMeaning:
    kind: XidKind
    text: str
    action: str
    fatal: bool = True

    @property
    def code(self) -> str:
        return CODES.get(self.kind, "gpu.xid")


_RESET = "drain the node and reset the GPU"
_REPLACE = "drain the node, reset the GPU, and replace it if this comes back"
_PROGRAM = (
    "look for an out-of-range access in the program (compute-sanitizer); another GPU with the same Xid confirms it"
)

XIDS: dict[int, XidMeaning] = {
    13: XidMeaning("application", "graphics engine exception, usually an out-of-range access of a kernel", _PROGRAM),
    31: XidMeaning("application", "GPU memory page fault, usually an illegal address in a kernel", _PROGRAM),
    32: XidMeaning("hardware", "invalid or corrupted push buffer stream", "check PCIe and driver"),
    38: XidMeaning("driver", "driver firmware error", "update the driver"),
    43: XidMeaning("application", "GPU stopped processing: a channel was reset after a fault", _PROGRAM),
    44: XidMeaning("hardware", "graphics engine fault during context switch", _RESET),
    45: XidMeaning(
        "teardown", "preemptive removal of channels: the job was torn down", "look for what ended the job", False
    ),
    46: XidMeaning("hardware", "GPU stopped processing", _RESET),
    48: XidMeaning("ecc", "double-bit ECC error", _REPLACE),
    54: XidMeaning("hardware", "auxiliary power is not connected", "check the power cables"),
    56: XidMeaning("hardware", "display engine error", _RESET),
    61: XidMeaning("hardware", "internal micro-controller breakpoint or warning", _RESET),
    62: XidMeaning("hardware", "internal micro-controller halt", _RESET),
    63: XidMeaning("ecc", "row remapping or page retirement recorded", "reset the GPU at the next chance", False),
    64: XidMeaning("ecc", "row remapping or page retirement failed", _REPLACE),
    66: XidMeaning("driver", "illegal access by driver", "update the driver"),
    68: XidMeaning("hardware", "video processor exception", _RESET),
    69: XidMeaning("hardware", "graphics engine class error", _RESET),
    74: XidMeaning(
        "nvlink", "NVLink error", "check the NVLink counters of this GPU and its peers, reset, then reseat or replace"
    ),
    79: XidMeaning(
        "fallen_off", "GPU has fallen off the bus", "power-cycle the node; check PCIe, power and temperature"
    ),
    92: XidMeaning("ecc", "high rate of single-bit ECC errors", _REPLACE),
    94: XidMeaning(
        "ecc", "contained uncorrectable ECC error: the program that hit it ends", "restart the job; reset the GPU"
    ),
    95: XidMeaning("ecc", "uncontained uncorrectable ECC error", _REPLACE),
    109: XidMeaning("driver", "context switch timeout", "update the driver; " + _RESET),
    110: XidMeaning("hardware", "security fault", _REPLACE),
    119: XidMeaning(
        "gsp", "the GPU's system processor (GSP) did not answer a call", "reset the GPU; update the driver"
    ),
    120: XidMeaning("gsp", "error of the GPU's system processor (GSP)", "reset the GPU; update the driver"),
    121: XidMeaning("nvlink", "corrected error on the chip-to-chip link", "reset the GPU at the next chance", False),
    136: XidMeaning("nvlink", "link training failed", "check the NVLink of this GPU and its peers"),
    137: XidMeaning("nvlink", "NVLink fault: a peer's memory access failed", "look at the Xids of the peer GPUs first"),
    140: XidMeaning("ecc", "unrecovered ECC error", _REPLACE),
    143: XidMeaning("hardware", "GPU initialisation error", _RESET),
    144: XidMeaning("nvlink", "NVLink 5: SAW error", "see the sub-code; a fatal one needs a reset"),
    145: XidMeaning("nvlink", "NVLink 5: RLW error", "see the sub-code; a fatal one needs a reset"),
    146: XidMeaning("nvlink", "NVLink 5: TLW error", "see the sub-code; a fatal one needs a reset"),
    147: XidMeaning("nvlink", "NVLink 5: TREX error", "see the sub-code; a fatal one needs a reset"),
    148: XidMeaning("nvlink", "NVLink 5: NVLPW_CTRL error", "see the sub-code; a fatal one needs a reset"),
    149: XidMeaning("nvlink", "NVLink 5: NETIR link event", "investigate the peer device of this link"),
    150: XidMeaning("nvlink", "NVLink 5: MSE error", "see the sub-code; a fatal one needs a reset"),
    154: XidMeaning(
        "hardware", "the GPU's recovery action changed", "do what nvidia-smi's GPU Recovery Action says", False
    ),
    155: XidMeaning("nvlink", "NVLink: software-defined error", "see the sub-code"),
    156: XidMeaning("ecc", "resource retirement event", "reset the GPU at the next chance", False),
    157: XidMeaning("ecc", "resource retirement failed", _REPLACE),
    158: XidMeaning("ecc", "GPU fatal timeout", _RESET),
}


def meaning(xid: int) -> XidMeaning:
    """What an Xid says; numbers that are not in the table are a driver's word and look for a newer table."""
    return XIDS.get(xid, XidMeaning("driver", f"Xid {xid}", "look the number up in NVIDIA's Xid catalogue"))


def sub_code(xid: int, first_word: int) -> int | None:
    """Sub-code of Xid 144-150 (NVLink 5) from the first word of its dump, bits 20-25; None for others."""
    return (first_word >> 20) & 0x3F if 144 <= xid <= 150 else None

"""Lines about versions and settings of the libraries."""

from __future__ import annotations

ROWS: list[tuple[str, str, str]] = [
    (
        "nccl_version_mismatch",
        "ismatched NCCL version",
        r"Mismatched NCCL version detected ?: rank (?P<a>\d+) version (?P<a_version>\d+) rank (?P<b>\d+) version "
        r"(?P<b_version>\d+)",
    ),
    ("nccl_version_mismatch", "ifferent NCCL version", r"[Dd]ifferent NCCL versions?\b"),
    ("nccl_symbol", "undefined symbol", r"(?P<error>undefined symbol: \w*[Nn][Cc][Cc][Ll]\w*)"),
    ("torch_version_mismatch", "torch", r"(?P<what>(?:PyTorch|torch) versions? (?:mismatch|differ)\w*.*)"),
    ("debug_detail", "TORCH_DISTRIBUTED_DEBUG", r"TORCH_DISTRIBUTED_DEBUG['\"]?\s?[=:]\s?['\"]?(?P<value>DETAIL)"),
]

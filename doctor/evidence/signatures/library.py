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
    ("build_lacks", "built in", r"Distributed package doesn't have (?P<what>\w+) built in"),
    ("build_lacks", "libuv", r"built without (?P<what>libuv) support"),
    ("build_lacks", "not compiled with", r"Torch not compiled with (?P<what>\w+) enabled"),
    # Huawei's HCCL (codes EI…), Intel's oneCCL, DeepEP
    ("hccl_differ", "EI0005", r"(?P<error>EI0005).*"),
    (
        "hccl_notify",
        "Notify re",
        r"Notify register has not received the Notify record from remote rank \[(?P<rank>\d+)\]",
    ),
    ("hccl_socket", "EI0006", r"(?P<error>EI0006)\b.*"),
    (
        "hccl_link",
        "EI0009",
        r"(?P<error>EI0009)\b(?:.*dst_rank\[(?P<rank>\d+)\])?(?:.*remote_ip_addr\[(?P<address>[\w.:]+)\])?",
    ),
    ("hccl_cqe", "EI0013", r"(?P<error>EI0013)\b.*"),
    ("hccl_failed", "ccl", r"(?P<error>Hccl\w+, error code is \d+|HCCL error in)"),
    ("hccl_failed", "ACL stream synchronize failed", r"(?P<error>ACL stream synchronize failed)"),
    ("ccl_provider", "can't init provider", r"can't init provider (?P<provider>[^\s,]+)"),
    ("ccl_provider", "fi_getinfo error", r"(?P<error>fi_getinfo error: ret \S+?, providers 0)"),
    ("ccl_provider", "suitable provider", r"(?P<error>can't find suitable provider)"),
    ("ccl_failed", "oneCCL: ", r"(?P<error>oneCCL: .*)"),
    ("deepep_timeout", "DeepEP", r"DeepEP (?:error: )?(?P<error>.{0,40}timeout.{0,20}?)(?:,|$)"),
    ("debug_detail", "TORCH_DISTRIBUTED_DEBUG", r"TORCH_DISTRIBUTED_DEBUG['\"]?\s?[=:]\s?['\"]?(?P<value>DETAIL)"),
]

"""Which variables are secrets: their values travel in memory only and are shown as ****."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "****"
_SECRET = re.compile(
    r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?|AUTH|COOKIE)(_|$)", re.IGNORECASE
)
_NOT_SECRET = {"PWD", "OLDPWD", "XAUTHORITY"}
_URL_PASSWORD = re.compile(r"(?P<scheme>\w+://[^/\s:@]*):[^@/\s]+@")


def is_secret(name: str, value: str = "") -> bool:
    """Whether the name, or a password in a URL, makes this variable a secret."""
    return (name not in _NOT_SECRET and bool(_SECRET.search(name))) or bool(_URL_PASSWORD.search(value))


def masked(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment as files and screens may hold it."""
    return {name: MASK if is_secret(name, value) else value for name, value in environment.items()}


def only_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if is_secret(name, value)}

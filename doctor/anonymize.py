"""Mask names in a bundle: hosts, addresses and user names, each always by the same word."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable, Iterable
from pathlib import Path

_ADDRESS = re.compile(rb"\b(?:\d{1,3}\.){3}\d{1,3}\b")
_HOME = re.compile(rb"(?<=/home/)[A-Za-z0-9._-]+|(?<=/Users/)[A-Za-z0-9._-]+")
_KEPT = {b"127.0.0.1", b"0.0.0.0", b"255.255.255.255"}


class Masks:
    """Words for names, in the order in which they are met; `host-1` stands for one host in all files."""

    def __init__(self, hosts: Iterable[str], users: Iterable[str]) -> None:
        self.words: dict[bytes, bytes] = {}
        for host in hosts:
            self.word(host.encode(), b"host")
        for user in users:
            self.word(user.encode(), b"user")

    def word(self, name: bytes, kind: bytes) -> bytes:
        if name not in self.words:
            number = sum(word.startswith(kind) for word in self.words.values()) + 1
            self.words[name] = b"%s-%d" % (kind, number)
        return self.words[name]

    def apply(self, data: bytes) -> bytes:
        """`data` with all names replaced; names found by their form (addresses, home folders) get words too."""
        data = _HOME.sub(lambda found: self.word(found[0], b"user"), data)
        data = _ADDRESS.sub(self._address, data)
        names = sorted(self.words, key=len, reverse=True)
        if not names:
            return data
        pattern = re.compile(rb"(?<![A-Za-z0-9])(" + b"|".join(map(re.escape, names)) + rb")(?![A-Za-z0-9])")
        replace: Callable[[re.Match[bytes]], bytes] = lambda found: self.words[found[1]]  # noqa: E731
        return pattern.sub(replace, data)

    def _address(self, found: re.Match[bytes]) -> bytes:
        return found[0] if found[0] in _KEPT else self.word(found[0], b"address")


def anonymize_folder(folder: Path, hosts: Iterable[str]) -> None:
    """Mask all files below `folder`. Pickled dumps are left out of a masked bundle: their lengths are part of them."""
    masks = Masks([*hosts, *_own_names()], {getpass.getuser()} - {"root"})
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if data[:1] == b"\x80":
                path.unlink()
            else:
                path.write_bytes(masks.apply(data))


def _own_names() -> list[str]:
    import socket

    return [socket.gethostname()]

"""A door at which others knock: proof that they reach this host, on a port that a job would use."""

from __future__ import annotations

import os
import random
import socket
import threading
from contextlib import closing, suppress

PORTS = range(20_000, 32_000)  # below the kernel's ephemeral ports: no outgoing connection takes one meanwhile


def free_port() -> int:
    """A TCP port on which nobody listens here. Raises OSError when a hundred tries find none."""
    for port in random.sample(PORTS, 100):
        with suppress(OSError), closing(socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET)) as s:
            s.bind(("", port))
            return port
    raise OSError("no free port between 20000 and 32000")


class Door:
    """Answers every connection with `nonce`, on a thread of its own, until it is closed."""

    def __init__(self, nonce: str = "") -> None:
        self.nonce = nonce or os.urandom(8).hex()
        self._server = socket.create_server(("", free_port()), reuse_port=False)
        self._thread = threading.Thread(target=self._answer, name="door", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def close(self) -> None:
        """Returns when the thread has ended and the port is free."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def _answer(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # it was closed
                return
            with connection, suppress(OSError):
                connection.sendall(self.nonce.encode())

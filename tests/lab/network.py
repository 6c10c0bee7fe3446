"""A cable and a switch for lab machines: one network namespace each, joined by a bridge in a "login" namespace.

Nothing shows up in the machine's own network, so several labs may use the same addresses at once, and a lab that is
gone cannot leak traffic to the default route.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.lab import namespaces
from tests.lab.namespaces import ip_batch

LOGIN = "login"


@dataclass(frozen=True)
class Network:
    """Namespaces `<lab>-<machine>`; `addresses` is machine -> IPv4 in one /24, the login machine included."""

    lab: str
    addresses: Mapping[str, str]

    @property
    def machines(self) -> list[str]:
        return [name for name in self.addresses if name != LOGIN]

    def namespace(self, machine: str) -> str:
        return f"{self.lab}-{machine}"

    def enter(self, machine: str) -> list[str]:
        """The argv prefix that runs a command in the machine's network."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(machine)}"]

    def up(self) -> None:
        ip_batch([f"netns add {self.namespace(machine)}" for machine in self.addresses])
        bridge = ["link set lo up", "link add br0 type bridge", f"addr add {self.addresses[LOGIN]}/24 dev br0"]
        cables = [
            line
            for machine in self.machines
            for line in (
                f"link add {machine} type veth peer name eth0 netns {self.namespace(machine)}",
                f"link set {machine} master br0 up",
            )
        ]
        ip_batch([*bridge, "link set br0 up", *cables], self.namespace(LOGIN))
        for machine in self.machines:
            address = f"addr add {self.addresses[machine]}/24 dev eth0"
            ip_batch(["link set lo up", address, "link set eth0 up"], self.namespace(machine))

    def cut(self, machine: str) -> None:
        """Pull the cable: no packet passes, nobody is told."""
        ip_batch([f"link set {machine} down"], self.namespace(LOGIN))

    def heal(self, machine: str) -> None:
        ip_batch([f"link set {machine} up"], self.namespace(LOGIN))

    def down(self) -> None:
        """Remove the namespaces and kill whatever still lives in them."""
        for machine in self.addresses:
            namespaces.remove(self.namespace(machine))

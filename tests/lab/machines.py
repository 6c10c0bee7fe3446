"""What the labs have in common: raised and removed as a context manager, or by hand from the command line."""

from __future__ import annotations

import argparse
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.lab.network import Network

L = TypeVar("L", bound="Lab")
CHECKOUT = Path(__file__).parents[2]
EVENTS = ("cut", "heal", "crash", "boot")


class Lab(ABC):
    """Machines on a network of their own, and a login node. On exit no process, namespace, mount or file is left."""

    network: Network

    def __enter__(self: L) -> L:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.down()

    @abstractmethod
    def up(self) -> None:
        """Raise all; returns when it can be used."""

    @abstractmethod
    def down(self) -> None:
        """Remove all of it."""

    @abstractmethod
    def login_argv(self, argv: Sequence[str]) -> list[str]:
        """`argv` as a command of this machine that runs on the login node."""

    @abstractmethod
    def host_argv(self, host: str, argv: Sequence[str]) -> list[str]:
        """`argv` as a command of this machine that runs inside `host`, past the cluster's own ways."""

    @abstractmethod
    def login_env(self, **values: str) -> dict[str, str]:
        """The environment of a process on the login node; `values` are added."""

    def cut(self, host: str) -> None:
        """Pull the cable."""
        self.network.cut(host)

    def heal(self, host: str) -> None:
        """Undo `cut`."""
        self.network.heal(host)

    @abstractmethod
    def crash(self, host: str) -> None:
        """Power loss: the cable goes first, so that no packet leaves, then every process dies."""

    @abstractmethod
    def boot(self, host: str) -> None:
        """Switch a host on again."""


def by_hand(
    name: str,
    folder: Path,
    options: Mapping[str, Mapping[str, object]],
    raise_lab: Callable[[argparse.Namespace], str],
    standing: Callable[[Path], Lab],
    events: Sequence[str] = EVENTS,
) -> None:
    """A lab's command line: up (with `options`), login, sh, down, and what may happen to a host.

    `raise_lab` returns what is told then; `standing` finds the lab that was raised in a folder.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.lab.{name}", description="machines to try things on")
    parser.add_argument("--dir", type=Path, default=folder, help="where the lab's files are")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up")
    for option, how in options.items():
        up.add_argument(option, **how)  # type: ignore[arg-type]
    commands.add_parser("down")
    commands.add_parser("login").add_argument("argv", nargs=argparse.REMAINDER)
    for event in ("sh", *events):
        commands.add_parser(event).add_argument("host")
    commands.choices["sh"].add_argument("argv", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    print(raise_lab(given)) if given.command == "up" else _act(standing(given.dir), given)


def _act(lab: Lab, given: argparse.Namespace) -> None:
    argv = [word for index, word in enumerate(getattr(given, "argv", ())) if index or word != "--"] or ["bash"]
    if given.command == "login":
        os.execvpe("nsenter", lab.login_argv(argv), lab.login_env())
    elif given.command == "sh":
        os.execvpe("nsenter", lab.host_argv(given.host, argv), lab.login_env())
    elif given.command == "down":
        lab.down()
    else:
        getattr(lab, given.command)(given.host)

"""The node side's commands, called by the controller. Arguments and answers are JSON documents.

Arguments come as the second word of the command line, or on standard input.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

ANSWERS = {  # command -> module of this package and its function, whose parameters are the arguments
    "describe": ("check", "describe_host"),
    "reach": ("check", "reach"),
    "muster": ("check", "muster"),
    "alive": ("check", "alive"),
    "stop": ("stop", "stop_node"),
    "sweep": ("stop", "sweep"),
    "warn": ("stop", "warn_agent"),
    "foreign": ("foreign", "find_ranks"),
    "inspect": ("inspect", "inspect_host"),
    "meet": ("meet", "meet"),
    "exercise": ("exercise", "exercise"),
}


def main() -> int:
    """`run`: the agent. `serve`: it too, after questions. `listen`: until its time is up. Others print their answer."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "run":
        from launcher.agent.run import main as run

        return run()
    if command == "serve":
        from launcher.agent.serve import serve

        return serve(answer)
    arguments: dict[str, Any] = json.loads(sys.argv[2] if len(sys.argv) > 2 else sys.stdin.read())
    if command == "listen":
        from launcher.agent.check import listen

        listen(**arguments)
        return 0
    print(json.dumps(answer(command, arguments)))
    return 0


def answer(command: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The document with which `command` answers; only what it needs is imported. Raises ValueError for no command."""
    if command not in ANSWERS:
        raise ValueError(f"no command {command!r}")
    module, function = ANSWERS[command]
    document: dict[str, Any] = getattr(importlib.import_module(f"launcher.agent.{module}"), function)(**arguments)
    return document


if __name__ == "__main__":
    sys.exit(main())

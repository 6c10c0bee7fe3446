"""The node side's commands, called by the controller. Arguments and answers are JSON documents.

Arguments come as the second word of the command line, or on standard input.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


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
    """The document with which `command` answers. Raises ValueError for a command that does not exist."""
    if command == "meet":
        from launcher.agent.meet import meet

        return meet(**arguments)
    if command == "inspect":
        from launcher.agent.inspect import inspect_host

        return inspect_host(**arguments)
    if command == "exercise":
        from launcher.agent.exercise import exercise

        return exercise(**arguments)
    from launcher.agent import check, stop
    from launcher.agent.door import free_port

    if command == "describe":
        return check.describe_host(**arguments)
    if command == "reach":
        return check.reach(**arguments)
    if command == "port":
        return {"port": free_port(**arguments)}
    if command == "stop":
        return stop.stop_node(**arguments)
    if command == "warn":
        return {"warned": stop.warn_agent(**arguments)}
    if command == "foreign":
        from launcher.agent.foreign import find_ranks

        return find_ranks(**arguments)
    if command == "sweep":
        return stop.sweep(**arguments)
    if command == "muster":
        return muster(**arguments)
    if command == "alive":
        agent = stop.find_agent(arguments["directory"], arguments["node_rank"])
        return {"alive": agent is not None, "disk_free": check.disk_free(arguments["directory"])}
    raise ValueError(f"no command {command!r}")


def muster(job: str, directory: str, paths: list[str]) -> dict[str, Any]:
    """On a Slurm node: end what an earlier run of `job` left, and say where the node is and what it has."""
    from launcher.agent import check, stop

    return {
        "topology": os.environ.get("SLURM_TOPOLOGY_ADDR", ""),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        **stop.sweep(job),
        **check.describe_host(directory, paths),
    }


if __name__ == "__main__":
    sys.exit(main())

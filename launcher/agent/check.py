"""What a host says of itself before a job starts there, and the proof that the hosts reach each other."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from launcher.agent.door import Door
from launcher.agent.stop import find_agent, sweep
from launcher.agent.versions import node_versions

CONNECT_TIMEOUT_S = 5.0


def describe_host(directory: str, paths: Sequence[str]) -> dict[str, Any]:
    """Facts of this host: name, clock, CPUs, addresses by interface, versions, and whether `paths` exist."""
    directory = str(Path(directory).expanduser())
    name = socket.gethostname()
    return {
        "hostname": name,
        "own_address": resolve(name),
        "time": time.time(),
        "cpus": len(os.sched_getaffinity(0)),
        "addresses": interface_addresses(),
        "versions": node_versions(),
        "directory": directory,
        "disk_free": disk_free(directory),
        "missing": [path for path in paths if not Path(path).exists()],
        "py_spy": find_py_spy(),
    }


def muster(job: str, directory: str, paths: Sequence[str]) -> dict[str, Any]:
    """On a Slurm node: end what an earlier run of `job` left, and say where the node is and what it has."""
    return {
        "topology": os.environ.get("SLURM_TOPOLOGY_ADDR", ""),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        **sweep(job),
        **describe_host(directory, paths),
    }


def alive(directory: str, node_rank: int) -> dict[str, Any]:
    """Whether the agent of a job's node lives, and the free bytes where it writes."""
    return {"alive": find_agent(directory, node_rank) is not None, "disk_free": disk_free(directory)}


def find_py_spy() -> str | None:
    """The py-spy beside this Python or on PATH."""
    return shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


def collectable(environment: Mapping[str, str]) -> dict[str, bool]:
    """What the doctor can get of ranks that run in `environment` on this host."""
    sizes = [environment.get(name, "2000") for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")]
    return {"stacks": find_py_spy() is not None, "flight_recorder": "0" not in sizes}


def resolve(name: str) -> str | None:
    with suppress(OSError):
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    return None


def interface_addresses() -> dict[str, list[str]]:
    """interface -> its IPv4 and IPv6 addresses."""
    families = (socket.AF_INET, socket.AF_INET6)
    return {
        name: [address.address.split("%")[0] for address in addresses if address.family in families]
        for name, addresses in psutil.net_if_addrs().items()
    }


def disk_free(directory: str) -> int:
    """Free bytes where `directory` is or will be."""
    path = Path(directory)
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def listen(nonce: str, seconds: float) -> None:
    """Print `{"port": n}`, and answer each connection with `nonce` until `seconds` have passed."""
    door = Door(nonce)
    print(json.dumps({"port": door.port}), flush=True)
    time.sleep(seconds)
    door.close()


def reach(candidates: Sequence[str], port: int, nonce: str) -> dict[str, Mapping[str, Any]]:
    """candidate address -> `{"ok", "resolved", "interface" or "error"}`: ok when `nonce` came back from there."""
    return {candidate: _reach_one(candidate, port, nonce) for candidate in candidates}


def _reach_one(candidate: str, port: int, nonce: str) -> dict[str, Any]:
    try:
        with socket.create_connection((candidate, port), CONNECT_TIMEOUT_S) as connection:
            local, remote = connection.getsockname()[0], connection.getpeername()[0]
            answered = connection.recv(len(nonce) + 1).decode(errors="replace")
    except OSError as error:
        return {"ok": False, "resolved": resolve(candidate), "error": str(error)}
    if answered != nonce:
        return {"ok": False, "resolved": remote, "error": "another program answers there"}
    return {"ok": True, "resolved": remote, "interface": interface_of(local)}


def interface_of(address: str) -> str | None:
    """Name of the interface that holds `address`."""
    address = address.removeprefix("::ffff:")
    return next((name for name, held in interface_addresses().items() if address in held), None)

"""Look at a host: one shell command that asks the vendor's tool and the kernel, read by pure parsers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import join, quote, split

from launcher.hosts.protocol import Answers, Host, on_all
from launcher.topology.model import HostTopology
from launcher.topology.sysfs import read_sysfs
from launcher.topology.vendors import NVIDIA, Vendor, of_plugins, vendors

PROBE_TIMEOUT_S = 60.0
MARK = "@@dlaunch"

# Sections begin with the mark. Every tool has its own time limit: a sick driver may never answer.
_HEAD = r"""
LC_ALL=C; export LC_ALL
ask() { echo "@@dlaunch $1"; shift; timeout 15 "$@" 2>&1; code=$?; [ $code -eq 0 ] || echo "@@dlaunch failed $code"; }
has() { command -v "$1" >/dev/null 2>&1; }
"""
_KERNEL = r"""
echo "@@dlaunch sysfs"
for node in /sys/devices/system/node/node[0-9]*; do
  [ -r "$node/cpulist" ] && echo "numa ${node##*node} $(cat "$node/cpulist")"
done
sed -n 's/^Cpus_allowed_list:[[:space:]]*/allowed /p' /proc/self/status
fact() { value=$(cat "$1" 2>/dev/null | tr ' ' '_'); echo "${value:--}"; }
for nic in /sys/class/infiniband/*; do
  [ -e "$nic" ] || continue
  for port in "$nic"/ports/*; do break; done
  for net in "$nic"/device/net/*; do break; done
  pci=$(readlink -f "$nic/device"); net=${net##*/}; [ "$net" = '*' ] && net=-
  echo "rdma ${nic##*/} ${pci##*/} $(fact "$nic/device/numa_node") $(fact "$port/state") $(fact "$port/rate") $net"
done
for net in /sys/class/net/*; do
  [ -e "$net/device" ] || continue
  pci=$(readlink -f "$net/device")
  echo "net ${net##*/} ${pci##*/} $(fact "$net/device/numa_node") $(fact "$net/operstate") $(fact "$net/speed")"
done
exit 0
"""


def probe_script() -> str:
    """The shell script that asks a host: the tool of the first vendor that it has, then the kernel."""
    tools = "el".join(_branch(vendor) for vendor in vendors())
    return f"{_HEAD}{tools}fi{_KERNEL}"


def _branch(vendor: Vendor) -> str:
    lines = (join([name, vendor.tool, *split(arguments)]) for name, arguments in vendor.asks.items())
    asks = "".join(f"  ask {line}\n" for line in lines)
    return f"if has {quote(vendor.tool)}; then echo {quote(f'{MARK} tool {vendor.tool}')}\n{asks}"


def probe(host: Host) -> HostTopology:
    """What `host` has. Without accelerators: no devices, but its NUMA nodes and NICs.

    Raises HostError when the host cannot be reached.
    """
    done = host.run(["sh", "-c", probe_script()], timeout=PROBE_TIMEOUT_S)
    return read_probe(done.text, host.name)


def probe_all(hosts: Sequence[Host]) -> Answers[HostTopology]:
    """`probe` on all hosts at once."""
    return on_all(hosts, probe)


def read_probe(text: str, host: str) -> HostTopology:
    """The output of `probe_script` as a topology; a tool that failed becomes a gap with its own words."""
    sections = split_sections(text)
    failures = tuple(failure(name, body) for name, body in sections.items() if f"{MARK} failed" in body)
    sound = [body for name, body in sections.items() if name != "sysfs" and f"{MARK} failed" not in body]
    asked = next((vendor for vendor in vendors() if f"tool {vendor.tool}" in sections), NVIDIA)
    topology = asked.read("\n\n".join(sound), host)
    kernel = read_sysfs(sections.get("sysfs", ""))
    return replace(
        topology,
        nics=kernel.join(topology.nics),
        numa_cpus=kernel.numa_cpus,
        allowed_cpus=kernel.allowed_cpus,
        gaps=(*topology.gaps, *filter(None, failures), *of_plugins()[1]),
        visible_variable=asked.visible,
    )


def split_sections(text: str) -> Mapping[str, str]:
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith(MARK) and "failed" not in line:
            current = sections.setdefault(line.removeprefix(MARK).strip(), [])
        else:
            current.append(line)
    return {name: "\n".join(lines) for name, lines in sections.items()}


def failure(name: str, body: str) -> str:
    """A gap for a tool that failed; the fabric query is silent, since only the newest drivers know it."""
    words = " ".join(line.strip() for line in body.splitlines() if line.strip() and not line.startswith(MARK))
    return "" if name == "fabric" else f"{name}: the vendor's tool failed: {words[:200] or 'it said nothing'}"

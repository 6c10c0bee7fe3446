"""Run the benchmarks and write what they measured into docs/benchmarks.md: `make bench`, on a machine that is quiet.

    python -m bench [NAME…] [--list]

Each section of the page stands between `<!-- bench:NAME -->` and `<!-- /bench -->`; what is not run keeps its text.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import pages

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Section:
    """One program of this folder, its arguments, and how its JSON becomes lines of Markdown."""

    program: str
    arguments: Sequence[str]
    lines: Callable[[Any], list[str]]

    @property
    def command(self) -> list[str]:
        return ["python", "-m", f"bench.{self.program}", *self.arguments]


SECTIONS: Mapping[str, Section] = {
    "launch": Section("launch", ("--rounds", "3"), pages.launch),
    "hosts": Section("hosts", ("--hosts", "64"), pages.hosts),
    "preflight": Section("preflight", ("--hosts", "64"), pages.preflight),
    "slurm": Section("slurm", (), pages.slurm),
    "placement": Section("placement", (), pages.placement),
    "plan": Section("plan", (), pages.plan),
    "tui": Section("tui", (), pages.tui),
    "doctor": Section("doctor", (), pages.doctor),
    "doctor-large": Section("doctor", ("--ranks", "16384", "--reduced", "--no-peer"), pages.doctor),
    "doctor-log": Section("doctor", ("--log", "300"), pages.doctor_log),
    "workloads": Section("workloads", (), pages.workloads),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--list", action="store_true", help="print names and commands, and run nothing")
    options = parser.parse_args()
    unknown = set(options.names) - set(SECTIONS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; --list names all")
    failed = []
    for name in options.names or SECTIONS:
        print(f"{name:14}{' '.join(SECTIONS[name].command)}", flush=True)
        if not options.list and not run(name):
            failed.append(name)
    sys.exit(f"failed, and left as it was in the page: {', '.join(failed)}" if failed else 0)


def run(name: str) -> bool:
    """Measure one section and write it into the page; False where the program left no result."""
    load = os.getloadavg()[0]
    document = measured(SECTIONS[name])
    if document is None:
        return False
    when = f"{time.strftime('%d %B %Y')}, {os.cpu_count()} CPUs, load before it {load:.1f}."
    lines = [f"`{' '.join(SECTIONS[name].command)}`: {when}", "", *SECTIONS[name].lines(document)]
    PAGE.write_text(replaced(PAGE.read_text(), name, lines))
    return True


def measured(section: Section) -> Any:
    """The document of one program. Its exit status may say that a limit was missed, and the document still counts."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json")
        argv = [sys.executable, *section.command[1:], "--json", str(file)]
        subprocess.run(argv, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        try:
            return json.loads(file.read_text())
        except (OSError, ValueError):
            return None


def replaced(page: str, name: str, lines: Sequence[str]) -> str:
    """`page` with other lines between the markers of `name`; raises ValueError where it has none."""
    pattern = re.compile(rf"(<!-- bench:{re.escape(name)} -->\n).*?(<!-- /bench -->)", re.DOTALL)
    text = "\n".join(["", *lines, ""]) + "\n"
    found, count = pattern.subn(lambda match: match[1] + text + match[2], page)
    if count != 1:
        raise ValueError(f"{count} sections {name!r} in the page")
    return found


if __name__ == "__main__":
    main()

"""`python -m tests.fuzz`: the search that coverage guides (libFuzzer through atheris)."""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from pathlib import Path

MEMORY = 8 << 30


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", default="doctor")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="keep what was found to be interesting here")
    options = parser.parse_args()
    try:
        import atheris
    except ImportError:
        parser.error("atheris is not installed (pip install atheris)")
    with atheris.instrument_imports(include=["doctor", "launcher"]):
        from tests.fuzz.targets import TARGETS
    if options.target not in TARGETS:
        parser.error(f"no target {options.target!r}; there are {', '.join(TARGETS)}")
    target, folder = TARGETS[options.target], options.corpus or Path(tempfile.mkdtemp(prefix="dlaunch-corpus-"))
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (folder / f"seed-{number}").write_bytes(seed)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # as the doctor's readers have it
    limits = [f"-max_total_time={options.seconds}", "-timeout=30", "-rss_limit_mb=0", "-max_len=65536"]
    atheris.Setup([sys.argv[0], *limits, str(folder)], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

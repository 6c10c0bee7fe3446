"""Rounds by hand: see the package."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import ExitStack

from tests.chaos.rounds import tell
from tests.chaos.sites import SITES
from tests.chaos.story import story


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Break jobs, then ask for the truth.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--round", type=int, metavar="N", help="this round alone")
    parser.add_argument("--site", choices=sorted(SITES), help="default: all that this user can raise, in turns")
    options = parser.parse_args()
    names = [options.site] if options.site else [name for name in SITES if name == "local" or os.geteuid() == 0]
    until, number, failed = time.monotonic() + options.minutes * 60, options.round or 0, 0
    print(f"seed {options.seed}, sites {', '.join(names)}", flush=True)
    with ExitStack() as stack:
        sites = [stack.enter_context(SITES[name]()) for name in names]
        while True:
            for site in sites:
                began = time.monotonic()
                acts = story(options.seed, number, site.name, site.hosts)
                told = tell(site, acts)
                failed += bool(told.lies)
                seconds = time.monotonic() - began
                fell = ", ".join(told.fell) or "nothing"
                print(f"round {number} {site.name:5} {seconds:5.1f} s  {len(told.lies)} lies  ({fell})", flush=True)
                print("".join(f"  {lie}\n" for lie in told.lies), end="", flush=True)
            number += 1
            if options.round is not None or time.monotonic() > until:
                break
    sys.exit(f"{failed} rounds of seed {options.seed} were not true" if failed else 0)


if __name__ == "__main__":
    main()

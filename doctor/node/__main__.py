"""`python -m doctor.node`: look at this node's part of a job. A JSON request on standard input, a .tar.gz on output."""

from __future__ import annotations

import json
import sys

from doctor.node.gather import Request, gather


def main() -> int:
    """Read the request, write the archive."""
    sys.stdout.buffer.write(gather(Request(**json.load(sys.stdin))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

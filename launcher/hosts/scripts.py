"""The shell scripts by which files are written and read and processes detached on a host: pure text, POSIX sh.

Written for a shell at the far end of a connection that may break at any moment: a file that arrived in part is never
renamed into place, and what is secret comes over standard input.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from launcher.hosts.protocol import quote

NO_SUCH_FILE = 44  # exit status of `read_script`


def spawn_script(argv: Sequence[str], log: str) -> str:
    """Start `argv` in a session of its own; it gets the script's standard input, whole, before the script ends.

    `cat` stays in the foreground: without it the end of the script would cut off input that sshd still holds.
    """
    program, file = shlex.quote(argv[0]), shlex.quote(log)
    return (
        f"command -v {program} >/dev/null || {{ echo {program}: not found >&2; exit 127; }}\n"
        f"(umask 077; mkdir -p {_folder(log)} && : >>{file}) || exit 1\n"
        f"cat | setsid -f {quote(argv)} >>{file} 2>&1"
    )


def write_script(path: str, size: int, mode: int, draft: str) -> str:
    """Write `size` bytes of standard input to `path`, through a file named `draft` in the same folder."""
    target, part = shlex.quote(path), shlex.quote(str(PurePosixPath(path).parent / draft))
    return (
        f"(umask 077; mkdir -p {_folder(path)} && cat >{part}) && chmod {mode:o} {part} && "
        f'test "$(wc -c <{part})" -eq {size} && mv -f {part} {target} || {{ rm -f {part}; exit 1; }}'
    )


def read_script(path: str, offset: int, limit: int | None) -> str:
    """Print the file from `offset`, at most `limit` bytes; exit status NO_SUCH_FILE when there is none."""
    file = shlex.quote(path)
    whole = f"test -e {file} || exit {NO_SUCH_FILE}; tail -c +{offset + 1} -- {file}"
    return whole if limit is None else f"{whole} | head -c {limit}"


def _folder(path: str) -> str:
    return shlex.quote(str(PurePosixPath(path).parent))

"""Read pickles that nobody vouches for: plain containers only, nothing is ever imported or called.

`loads` is as quick as `pickle.loads` and all or nothing; `salvage` interprets the opcodes itself and gives what a
truncated pickle holds up to where it breaks. A crafted pickle can still ask the quick reader for much memory: callers
that face hostile files run it in a process with limited memory.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any, NoReturn

BUFFER_BYTES = 1 << 20
MAX_DEPTH = 64  # levels of containers that are open at once, in `salvage`


class RefusedPickleError(ValueError):
    """The pickle wants more than plain containers, or is damaged."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise RefusedPickleError(f"the pickle wants to import {module}.{name}: refused")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise RefusedPickleError("the pickle refers to objects outside: refused")


def loads(data: bytes) -> Any:
    """The plain value in `data`; raises RefusedPickleError when it is anything else, or damaged."""
    try:
        # a reader that can peek: the unpickler asks others for every few bytes, which takes three times as long
        return _PlainUnpickler(io.BufferedReader(io.BytesIO(data), BUFFER_BYTES)).load()
    except RefusedPickleError:
        raise
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        raise RefusedPickleError(f"damaged pickle: {error}") from error


def salvage(data: bytes) -> Any:
    """What a truncated pickle of plain containers holds: open containers are closed where the data ends.

    Raises RefusedPickleError when there is nothing, or when an opcode would import, call or build objects.
    """
    machine = _Machine(data)
    try:
        machine.run()
    except (IndexError, struct.error, KeyError, TypeError, ValueError) as error:
        if isinstance(error, RefusedPickleError):
            raise
    return machine.closed()


class _Mark:
    """Where a run of items begins on the stack."""


_MARK = _Mark()
_FIXED: dict[int, tuple[str, int]] = {
    ord("K"): ("<B", 1),
    ord("M"): ("<H", 2),
    ord("J"): ("<i", 4),
    ord("G"): (">d", 8),
}
_CONSTANTS: dict[int, Callable[[], Any]] = {
    ord("N"): lambda: None,
    0x88: lambda: True,
    0x89: lambda: False,
    ord("]"): list,
    ord("}"): dict,
    ord(")"): tuple,
}
_SIZED: dict[int, tuple[str, int, bool]] = {  # opcode: format of the length, its bytes, whether text
    ord("X"): ("<I", 4, True),
    0x8C: ("<B", 1, True),
    0x8D: ("<Q", 8, True),
    ord("B"): ("<I", 4, False),
    ord("C"): ("<B", 1, False),
    0x8E: ("<Q", 8, False),
    0x8A: ("<B", 1, False),
}
_SKIPPED = {0x80: 1, 0x95: 8}  # PROTO, FRAME: opcode -> bytes of argument


class _Machine:
    """The plain opcodes of protocols 2 to 5 over a stack that is still there when the data ends."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.depth = 0

    def run(self) -> None:
        while self.at < len(self.data):
            code = self.data[self.at]
            self.at += 1
            if code == ord("."):
                return
            self.step(code)

    def step(self, code: int) -> None:
        if code in _FIXED:
            self.stack.append(self.unpack(*_FIXED[code]))
        elif code in _CONSTANTS:
            self.stack.append(_CONSTANTS[code]())
        elif code in _SIZED:
            self.stack.append(self.sized(code))
        elif code in _SKIPPED:
            self.take(_SKIPPED[code])
        elif code == ord("("):
            self.open()
        elif not self.memoise(code):
            self.collect(code)

    def open(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise RefusedPickleError(f"containers are nested deeper than {MAX_DEPTH}: refused")
        self.stack.append(_MARK)

    def memoise(self, code: int) -> bool:
        if code == ord("q"):
            self.memo[self.unpack("<B", 1)] = self.stack[-1]
        elif code == ord("r"):
            self.memo[self.unpack("<I", 4)] = self.stack[-1]
        elif code == 0x94:
            self.memo[len(self.memo)] = self.stack[-1]
        elif code == ord("h"):
            self.stack.append(self.memo[self.unpack("<B", 1)])
        elif code == ord("j"):
            self.stack.append(self.memo[self.unpack("<I", 4)])
        else:
            return False
        return True

    def collect(self, code: int) -> None:
        if code == ord("a"):
            item = self.stack.pop()
            self.stack[-1].append(item)
        elif code == ord("s"):
            value, key = self.stack.pop(), self.stack.pop()
            self.stack[-1][key] = value
        elif code in (ord("e"), ord("u"), ord("t")):
            self.close(code)
        elif code in (0x85, 0x86, 0x87):
            count = code - 0x84
            self.stack[-count:] = [tuple(self.stack[-count:])]
        else:
            raise RefusedPickleError(f"opcode {code:#x} builds more than plain containers: refused")

    def close(self, code: int) -> None:
        items = self.items()
        if code == ord("t"):
            self.stack.append(tuple(items))
        elif code == ord("e"):
            self.stack[-1].extend(items)
        else:
            self.stack[-1].update(zip(items[::2], items[1::2], strict=False))

    def items(self) -> list[Any]:
        start = len(self.stack) - 1
        while self.stack[start] is not _MARK:
            start -= 1
        items = self.stack[start + 1 :]
        del self.stack[start:]
        self.depth -= 1
        return items

    def closed(self) -> Any:
        """Close the open containers from the inside out, as the missing opcodes would have."""
        while _MARK in self.stack:
            start = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
            pending = self.stack[start + 1 :]
            del self.stack[start:]
            self.put(pending)
        if not self.stack:
            raise RefusedPickleError("the pickle holds nothing readable")
        root = self.stack[0]
        if isinstance(root, dict):
            self.stack, pending = [root], self.stack[1:]
            self.put(pending)
        return root

    def put(self, pending: list[Any]) -> None:
        """Give the run of items after a mark to the container before it. At its end may stand parts of an inner one."""
        holder = self.stack[-1] if self.stack else None
        if isinstance(holder, list) and pending:
            holder.extend(item for item in pending if type(item) is type(pending[0]))
        elif isinstance(holder, dict):
            for key, value in zip(pending[::2], pending[1::2], strict=False):
                if not isinstance(key, str):
                    break
                holder[key] = value

    def sized(self, code: int) -> Any:
        form, width, text = _SIZED[code]
        raw = self.take(self.unpack(form, width))
        if code == 0x8A:
            return int.from_bytes(raw, "little", signed=True)
        return raw.decode(errors="replace") if text else raw

    def unpack(self, form: str, width: int) -> Any:
        return struct.unpack(form, self.take(width))[0]

    def take(self, count: int) -> bytes:
        piece = self.data[self.at : self.at + count]
        if len(piece) < count:
            self.at = len(self.data)
            raise IndexError("the data ends here")
        self.at += count
        return piece

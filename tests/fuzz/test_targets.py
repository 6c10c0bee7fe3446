"""Some damage to every seed, the same every time."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS


@cache
def seeds(name: str) -> tuple[bytes, ...]:
    return tuple(TARGETS[name].seeds())


def damaged(name: str, number: int) -> bytes:
    """A seed with one to four cuts, doublings, exchanges of bytes, or with a piece of another seed in it."""
    rng = random.Random(number)
    data = bytearray(rng.choice(seeds(name)))
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.randrange(1, 200))
        other = rng.choice(seeds(name))
        cut = rng.randrange(len(other) + 1)
        piece = (b"", bytes(data[start:end]) * 2, rng.randbytes(end - start), other[cut : cut + 100])
        data[start:end] = rng.choice(piece)
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=150, derandomize=True)
@given(st.integers(0, 2**32))
def test_damaged_input_ends_in_no_error_that_is_not_foreseen(name: str, number: int) -> None:
    TARGETS[name].run(damaged(name, number))

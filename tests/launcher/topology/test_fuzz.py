"""Matrices cut, re-tabbed, coloured, shuffled, wrapped and led by logs: no crash, no wrong link, no needless loss."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.topology import HostTopology
from launcher.topology.parse import parse_topology
from tests.launcher.topology.printed import LEGEND, TITLES, Machine, random_machine, rows_of, spaced, tabbed

machines = st.builds(random_machine, st.integers(0, 10_000), st.integers(1, 10), st.integers(0, 4))
eras = st.sampled_from(sorted(TITLES))
printers = st.sampled_from([tabbed, spaced])


def wrong_links(machine: Machine, found: HostTopology) -> list[str]:
    """Links and devices that the machine does not have."""
    bad = [str(link) for link in found.links if machine.kinds.get(frozenset((link.a, link.b))) != link.printed]
    return bad + [device.name for device in found.devices if device.name not in machine.devices]


def assert_whole(machine: Machine, text: str) -> None:
    found = parse_topology(text)
    assert wrong_links(machine, found) == []
    assert {frozenset((link.a, link.b)) for link in found.links} == set(machine.kinds), found.gaps
    assert [device.name for device in found.devices] == sorted(machine.devices, key=lambda name: int(name[3:]))
    assert {nic.name for nic in found.nics} == set(machine.nics)


def printed(machine: Machine, era: str, printer: Callable[..., str], seed: int = 0) -> str:
    """The matrix, with rows and columns in another order for another seed than 0."""
    columns, rows = list(machine.labels), list(machine.labels)
    if seed:
        random.Random(seed).shuffle(columns)
        random.Random(seed + 1).shuffle(rows)
    return printer(rows_of(machine, era, columns, rows)) + LEGEND


@settings(max_examples=150)
@given(machines, eras, printers, st.integers(0, 5))
def test_a_whole_matrix_is_read_whole(machine: Machine, era: str, printer: Callable[..., str], seed: int) -> None:
    assert_whole(machine, printed(machine, era, printer, seed))


def coloured(text: str, rng: random.Random) -> str:
    codes = ["\x1b[4m", "\x1b[0m", "\x1b[1;31m", "\x1b[38;5;12m", "\x1b[K", "\x1b]0;a title\x07"]
    words = text.split(" ")
    return " ".join(rng.choice(codes) + word if rng.random() < 0.3 else word for word in words)


def retabbed(text: str, rng: random.Random) -> str:
    return "".join(
        rng.choice(["\t", " ", "  ", "\t\t", " \t"]) if c in " \t" and rng.random() < 0.5 else c for c in text
    )


def led(text: str, rng: random.Random) -> str:
    lead = rng.choice(["2026-03-01T10:00:00Z node7 app[12]: ", "[10:11:12] INFO ", "> ", "root@n1:~# ", "0: ", "n1: "])
    return "".join(lead + line + "\n" for line in text.splitlines())


def windows(text: str, rng: random.Random) -> str:
    return "\ufeff" + text.replace("\n", "\r\n")


def preamble(text: str, rng: random.Random) -> str:
    lines = [
        "$ nvidia-smi topo -m",
        "76 NICs found in the topology, only displaying 56 in the matrix.",
        "",
        "WARNING: x",
    ]
    return "\n".join(lines[: rng.randint(1, 4)]) + "\n" + text


def stripped(text: str, rng: random.Random) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


def escaped(text: str, rng: random.Random) -> str:
    return '"' + text.replace("\t", "\\t").replace("\n", "\\n") + '"'


def numbered(text: str, rng: random.Random) -> str:
    form = rng.choice(["{}:{}", "{:6}\t{}", "{}. {}"])
    return "\n".join(form.format(number, line) for number, line in enumerate(text.splitlines(), 1))


def patched(text: str, rng: random.Random) -> str:
    return "\n".join(rng.choice("+ ") + line for line in text.splitlines())


def marked_up(text: str, rng: random.Random) -> str:
    tab = rng.choice(["&#9;", "&nbsp;&nbsp;", "</td><td>"])
    return "<pre>\n" + text.replace("\t", tab) + "</pre>"


def boxed(text: str, rng: random.Random) -> str:
    line = rng.choice("│┃║|")
    return "┌──┐\n" + "".join(f"{line}{row}{line}\n" for row in text.splitlines()) + "└──┘"


HARMLESS = [
    coloured, retabbed, led, windows, preamble, stripped, escaped, numbered, patched, marked_up, boxed,
]  # fmt: skip


@pytest.mark.parametrize("change", HARMLESS, ids=lambda change: change.__name__)
@settings(max_examples=60)
@given(machine=machines, era=eras, printer=printers, seed=st.integers(0, 50))
def test_what_does_not_touch_the_cells_loses_nothing(
    change: Callable[[str, random.Random], str], machine: Machine, era: str, printer: Callable[..., str], seed: int
) -> None:
    assert_whole(machine, change(printed(machine, era, printer, seed), random.Random(seed)))


@settings(max_examples=100)
@given(machines, eras, st.integers(40, 120), st.integers(0, 5))
def test_wrapped_lines_are_joined(machine: Machine, era: str, width: int, seed: int) -> None:
    whole = printed(machine, era, spaced, seed).splitlines()
    text = "\n".join(line[at : at + width] for line in whole for at in range(0, max(1, len(line)), width))
    found = parse_topology(text)
    assert wrong_links(machine, found) == []
    whole_lists = {device.cpus for device in parse_topology("\n".join(whole)).devices}
    assert {device.cpus for device in found.devices} <= {*whole_lists, None}


@settings(max_examples=400)
@given(machines, eras, printers, st.integers(0, 5), st.data())
def test_a_cut_text_gives_no_wrong_link(
    machine: Machine, era: str, printer: Callable[..., str], seed: int, data: st.DataObject
) -> None:
    text = printed(machine, era, printer, seed)
    end = data.draw(st.integers(0, len(text)))
    start = data.draw(st.integers(0, end))
    found = parse_topology(data.draw(st.sampled_from([text[:end], text[start:], text[start:end]])))
    assert wrong_links(machine, found) == []


@settings(max_examples=200)
@given(machines, eras, printers, st.integers(10, 90))
def test_lines_cut_at_a_width_give_no_wrong_link(
    machine: Machine, era: str, printer: Callable[..., str], width: int
) -> None:
    text = "\n".join(line[:width] for line in printed(machine, era, printer).splitlines())
    assert wrong_links(machine, parse_topology(text)) == []


@settings(max_examples=200)
@given(machines, eras, printers, st.lists(st.integers(0, 20), max_size=6))
def test_lost_lines_give_no_wrong_link(
    machine: Machine, era: str, printer: Callable[..., str], lost: list[int]
) -> None:
    kept = [line for i, line in enumerate(printed(machine, era, printer).splitlines()) if i not in lost]
    found = parse_topology("\n".join(kept))
    assert wrong_links(machine, found) == []


def test_a_piece_of_a_cell_is_no_self_cell() -> None:
    """`S`, as Intel's tool marks self, may be the front of `SYS` in a matrix that says `X`."""
    text = "GPU6\tGPU1\tGPU2\nGPU2\tPIX\tX\tNV1\nGPU1\tPIX\tS"
    assert parse_topology(text).links == ()


@settings(max_examples=300)
@given(st.text(alphabet="GPUNIC0123456789XSYPHBV \t\n-_:=/", max_size=400))
def test_noise_never_raises(text: str) -> None:
    parse_topology(text)

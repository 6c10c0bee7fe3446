"""Files from machines that nobody vouches for: refused or bounded, told in a gap, and never answered by `none`."""

from __future__ import annotations

import json
import pickle
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.evidence import EvidenceSet
from doctor.report.html import render as html
from doctor.report.markdown import render as markdown
from doctor.report.terminal import render as terminal
from doctor.rules import Rule, hang, rules
from launcher.common.finding import Evidence, Finding, Verdict
from launcher.common.unpickle import RefusedPickleError, loads, salvage
from tests.doctor.dumps import Op, recorders, write_all

HEAD = b"\x80\x02}q\x00X\x09\x00\x00\x00pg_config"
DEEP = HEAD + b"]" + b"(" * 100_000 + b"]" * 100_000
NESTED_TUPLES = HEAD + b"})" + b"\x85" * 3_000_000 + b"Nss."  # its hash would recurse three million deep
HUGE_MEMO = HEAD + b"}r" + struct.pack("<I", 0x7FFFFFFF) + b"s."
HUGE_STRING = HEAD + b"X" + struct.pack("<I", 0x7FFFFFFF) + b"x"
CYCLE = pickle.dumps({"pg_config": {}, "entries": []}, 2)


def calls_code() -> bytes:
    return HEAD + b"cos\nsystem\nq\x01X\x02\x00\x00\x00id\x85Rs."


@pytest.mark.parametrize(
    "data",
    [DEEP, NESTED_TUPLES, HUGE_MEMO, HUGE_STRING, calls_code(), HEAD + b"\x93s.", HEAD + b"\xff" * 100],
    ids=["deep", "tuples", "memo", "string", "code", "global", "garbage"],
)
def test_a_hostile_pickle_is_told_and_never_healthy(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(data)
    found = discover([tmp_path])
    assert found.gaps
    assert diagnose(found).answer == "unknown"


def test_a_hostile_file_does_not_hide_its_neighbours(tmp_path: Path) -> None:
    ranks = recorders(4)
    for one in ranks:
        one.run(Op(), Op())
        if one.rank != 2:
            one.wait(Op())
    write_all(ranks, tmp_path)
    (tmp_path / "nccl_trace_rank_9").write_bytes(NESTED_TUPLES)
    finding = diagnose(discover([tmp_path]), "hang").findings[0]
    assert (finding.code, finding.ranks) == ("hang.absent_rank", (2,))


def test_entries_of_any_shape_end_in_a_gap(tmp_path: Path) -> None:
    for number, entries in enumerate([5, [5], [{}], [{"process_group": [[]]}], [{"state": []}], [{"frames": 5}]]):
        document = {"pg_config": {"0": 7}, "pg_status": [], "entries": entries}
        (tmp_path / f"rank_{number}.json").write_text(json.dumps(document))
    assert diagnose(discover([tmp_path])).answer in ("unknown", "none")


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_the_interpreter_of_truncated_pickles_refuses_or_gives_plain_values(data: bytes) -> None:
    with suppress(RefusedPickleError):
        assert plain(salvage(data))


@settings(max_examples=60)
@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.integers(2, 5),
)
def test_plain_values_are_read_as_they_are(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    assert loads(data) == value
    assert salvage(data) == value


def test_what_came_before_the_cut_is_kept() -> None:
    data = pickle.dumps({"version": "2.10", "entries": [{"a": 1}, {"a": 2}, {"a": 3}]}, 2)
    kept = salvage(data[: data.rindex(b"K\x03")])
    assert kept["version"] == "2.10"
    assert kept["entries"][:2] == [{"a": 1}, {"a": 2}]


def plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | bytes | list | dict | tuple)


EVIL = "\x1b]0;owned\x07<script>alert(1)</script> `|` \x1b[2J"


def test_text_of_strangers_is_harmless_in_every_report() -> None:
    finding = Finding("hang.desync", "error", EVIL, EVIL, evidence=[Evidence("log", EVIL, EVIL)], missing=[EVIL])
    verdict = Verdict("hang", [finding])
    for text in (terminal(verdict), markdown(verdict), html(verdict, discover([]))):
        assert "\x1b" not in text.replace("\x1b[0m", "").replace("\x1b[31m", "").replace("\x1b[1m", "")
        assert "<script" not in html(verdict, discover([]))
    assert "\\<script\\>" in markdown(verdict)


def test_a_rule_that_fails_leaves_the_others_their_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(evidence: EvidenceSet) -> list[Finding]:
        raise ZeroDivisionError("of this kind")

    monkeypatch.setattr(hang, "RULES", (Rule(("hang.desync",), ("hang",), broken),))
    rules.cache_clear()
    try:
        finding = diagnose(EvidenceSet([], []), "hang").findings[0]
    finally:
        rules.cache_clear()
    assert (finding.code, finding.cause) == (
        "doctor.rule_failed",
        "The rule broken failed: ZeroDivisionError: of this kind.",
    )


def test_a_rank_that_no_job_has_costs_no_memory(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]:   File 'train.py', line 3 in main" for rank in (0, 4 * 10**18)]
    heads = [f"[rank{rank}]: Thread 0x00007f{rank % 9} (most recent call first):" for rank in (0, 4 * 10**18)]
    (tmp_path / "stacks.txt").write_text("\n".join(f"{head}\n{line}" for head, line in zip(heads, lines, strict=True)))
    assert not any(finding.code == "doctor.rule_failed" for finding in diagnose(discover([tmp_path])).findings)

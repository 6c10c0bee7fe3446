"""Reports, traces, bundles and the scoreboard."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent  # type: ignore[import-untyped]

from doctor.anonymize import Masks, anonymize_folder
from doctor.cli import COMMANDS, ddoctor
from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.drills.run import HEALTHY, Drill, cells, score, scoreboard
from doctor.drills.table import EXPECTED
from doctor.report.html import render as html
from doctor.report.terminal import render as terminal
from doctor.report.timeline import trace
from doctor.rules.fleet import fleet_of
from doctor.verdict import judge, merge
from launcher.common.finding import Evidence, Finding, Verdict
from tests.doctor.dumps import Op, recorders, write_all
from tests.support.browser import Browser


@pytest.fixture
def hung(tmp_path: Path) -> Path:
    ranks = recorders(4)
    for one in ranks:
        one.run(Op(), Op(name="broadcast"))
        if one.rank != 2:
            one.wait(Op())
    return write_all(ranks, tmp_path)


def test_the_trace_is_what_perfetto_reads(hung: Path) -> None:
    decoded = Trace()
    decoded.ParseFromString(trace(discover([hung]).once(fleet_of)))
    names = {packet.track_descriptor.name for packet in decoded.packet if packet.HasField("track_descriptor")}
    events = [packet for packet in decoded.packet if packet.HasField("track_event")]
    begun = [one for one in events if one.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    ended = [one for one in events if one.track_event.type == TrackEvent.TYPE_SLICE_END]
    assert {"rank 0", "rank 3", "default_pg (4)"} <= names
    assert len(begun) == len(ended) == 4 * 2 + 3
    assert {one.track_event.name for one in begun} == {"all_reduce", "broadcast"}
    assert all(end.timestamp >= start.timestamp for start, end in zip(begun, ended, strict=True))


def test_the_page_is_well_formed_and_shows_the_graph(hung: Path) -> None:
    evidence = discover([hung])
    page = html(diagnose(evidence, "hang"), evidence)
    opened: list[str] = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "rect", "line", "path"):
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in ("rect", "line", "path"):
                assert opened.pop() == tag

    Checker().feed(page)
    assert not opened
    assert "rank 2" in page
    assert "<svg" in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.lab
async def test_a_browser_draws_the_page_and_complains_of_nothing(
    hung: Path, tmp_path: Path, browser_ready: None
) -> None:
    evidence = discover([hung])
    page = tmp_path / "report.html"
    page.write_text(html(diagnose(evidence, "hang"), evidence))
    async with Browser() as browser:
        await browser.open(page.as_uri())
        drawn = await browser.value("[...document.querySelectorAll('svg')].map(x => x.getBoundingClientRect().width)")
        assert drawn and all(width > 0 for width in drawn)
        assert "rank 2 has not entered" in await browser.value("document.body.innerText")
        assert browser.complaints == []


def test_a_thousand_ranks_fit_a_screen() -> None:
    ranks = recorders(1000)
    from doctor.evidence import EvidenceSet
    from doctor.evidence.flight_recorder import normalised
    from doctor.evidence.tabulate import tabulate

    for one in ranks:
        one.run(Op())
        if one.rank % 100:
            one.wait(Op())
    found = EvidenceSet([tabulate(normalised(one.dump()), one.rank, f"fr_{one.rank}") for one in ranks])
    text = terminal(diagnose(found, "hang"))
    assert len(text.splitlines()) < 40
    assert "ranks 0,100,200" in text


def test_causes_come_before_victims_and_sure_before_unsure() -> None:
    findings = [
        Finding("cascade.remote_error", "error", "victim"),
        Finding("hang.absent_rank", "error", "cause", confidence=0.8),
        Finding("gpu.xid", "error", "guess", confidence=0.3),
        Finding("host.oom_killed", "error", "root", confidence=0.7),
        Finding("benign.warning_only", "info", "noise"),
    ]
    verdict = judge("diagnose", findings, discover([]))
    assert [one.cause for one in verdict.findings] == ["root", "cause", "victim", "guess", "noise"]


def test_equal_findings_are_joined() -> None:
    one = Finding("gpu.ecc", "error", "same", ranks=(3,), hosts=("a",), evidence=[Evidence("log", "x", "y")])
    two = Finding("gpu.ecc", "error", "same", ranks=(1,), hosts=("b",), evidence=[Evidence("log", "x", "y")])
    (joined,) = merge([one, two])
    assert (joined.ranks, joined.hosts, len(joined.evidence)) == ((1, 3), ("a", "b"), 1)


def test_names_are_masked_the_same_everywhere(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("gpu07 said 10.1.2.3 in /home/alice/run; gpu071 and 127.0.0.1 stay")
    (tmp_path / "b").write_text("10.1.2.3 is gpu07 of alice")
    anonymize_folder(tmp_path, ["gpu07"])
    first, second = (tmp_path / "a").read_text(), (tmp_path / "b").read_text()
    assert "gpu07 " not in first + second
    assert "alice" not in first + second
    assert "10.1.2.3" not in first + second
    assert "127.0.0.1" in first
    assert second.split()[0] in first


def test_a_user_whose_name_is_part_of_the_folders_word() -> None:
    assert Masks([], []).apply(b"/home/me/train.py and /Users/sers/x") == b"/home/user-1/train.py and /Users/user-2/x"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "nccl"])
def test_every_command_has_help_with_an_example(name: str) -> None:
    done = CliRunner().invoke(ddoctor, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert "Example: ddoctor" in " ".join(done.output.split())
    assert "--json" in done.output


@pytest.mark.parametrize("command", ["diagnose", "hang"])
def test_the_document_and_the_exit_status(hung: Path, command: str) -> None:
    done = CliRunner().invoke(ddoctor, [command, str(hung), "--json"])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["schema"], document["answer"]) == (1, 1, "hang.absent_rank")


def test_stacks_timeline_and_compare_from_files(hung: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(ddoctor, ["timeline", str(hung), "-o", str(tmp_path / "t.pftrace")]).exit_code == 0
    done = runner.invoke(ddoctor, ["compare", str(hung), str(hung), "--json"])
    assert json.loads(done.stdout)["differences"] == [[]]


def test_every_drill_names_a_fault_that_exists() -> None:
    from workloads.common.faults import KINDS

    assert set(EXPECTED) <= set(KINDS)
    assert {drill.fault for drill in cells([], ["ddp"])} >= {"stop", "die", HEALTHY}


def test_the_score_counts_code_rank_and_false_alarms() -> None:
    drill = Drill("stop", "ddp", rank=1)
    right = Verdict("hang", [Finding("hang.absent_rank", "error", "x", ranks=(1,))])
    wrong = Verdict("hang", [Finding("hang.absent_rank", "error", "x", ranks=(0,))])
    alarm = score(Drill(HEALTHY, "ddp"), right, 1.0)
    board = scoreboard([score(drill, right, 1.0), score(drill, wrong, 1.0), alarm])
    assert board["score"] == {"code": 1.0, "rank": 0.5, "false_alarms": 1}

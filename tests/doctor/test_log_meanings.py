"""Lines and stacks of every family, in the forms of several versions and tools, lead to the code of their mechanism."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover
from launcher.common.finding import Verdict

Case = tuple[str, str, str]


def cases() -> list[Case]:
    """(code, pattern of the findings' words, text) of each block."""
    texts = [(Path(__file__).parent / name).read_text() for name in ("log_meanings.txt", "stack_meanings.txt")]
    blocks = [block for text in texts for block in text.split("\n== ")[1:]]
    heads = [block.partition("\n") for block in blocks]
    return [(head.partition(" |")[0], head.partition("| ")[2], text) for head, _, text in heads]


def judge(folder: Path, text: str, name: str = "job.out") -> Verdict:
    """The verdict on a text, or on the files that it holds, each after a line `@@ NAME`."""
    first, *files = re.split(r"^@@ (.+)\n", text, flags=re.MULTILINE)
    for file, content in zip(files[::2], files[1::2], strict=True) if files else ((name, first),):
        (folder / file).write_text(content)
    return diagnose(discover([folder]))


def words(verdict: Verdict) -> str:
    return " ".join(
        f"{one.cause} {one.fix} {dict(one.detail)} {list(one.ranks)} {list(one.hosts)}" for one in verdict.findings
    )


@pytest.mark.parametrize(("code", "pattern", "text"), cases(), ids=[f"{i}-{case[0]}" for i, case in enumerate(cases())])
def test_lines_lead_to_their_mechanism(tmp_path: Path, code: str, pattern: str, text: str) -> None:
    verdict = judge(tmp_path, text)
    first = verdict.findings[0].code if verdict.findings else "none"
    assert code in (verdict.answer, first)
    assert re.search(pattern, words(verdict))


PREFIXES = (
    "",
    "0: ",
    "[1,3]<stderr>:",
    "[rank3]:",
    "2026-02-18T10:28:25.497Z ",
    "2026-02-18T10:28:25.497123456Z stderr F ",
    "(TrainWorker pid=1234, ip=10.0.0.1) ",
    "node9: ",
    "worker-3  | ",
    "[pod/job-worker-3/pytorch] ",
    "\x1b[36m(head, rank=3, pid=77)\x1b[0m ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes_of_launchers_and_collectors_do_not_matter(tmp_path: Path, prefix: str) -> None:
    line = "host7:4101:4388 [3] transport/net_ib.cc:71 NCCL WARN NET/IB : Got completion from peer 10.9.0.4<40012> "
    verdict = judge(tmp_path, f"{prefix}{line}with error 12, opcode 0, len 0, vendor err 129\n")
    assert verdict.answer == "net.retry_exceeded"
    assert "host7" in verdict.findings[0].hosts and "10.9.0.4" in verdict.findings[0].cause


def test_terminal_escapes_do_not_reach_a_finding(tmp_path: Path) -> None:
    verdict = judge(
        tmp_path,
        "host7:1:2 [3] NCCL WARN Call to ibv_create_qp failed with error \x1b]0;x\x07Cannot allocate memory\x1b[31m\n",
    )
    assert verdict.answer == "init.queue_limit"
    assert not re.search(
        r"[\x00-\x08\x0e-\x1f]", words(verdict) + " ".join(e.text for f in verdict.findings for e in f.evidence)
    )


def test_a_cause_stands_before_its_victims(tmp_path: Path) -> None:
    text = (
        "[rank0]: ncclRemoteError: A call failed possibly due to a network error.\n"
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity.\n"
        "[rank1]: socketProgress: Connection closed by remote peer node2<32926>\n"
    )
    codes = [one.code for one in judge(tmp_path, text).findings]
    assert codes[0] == "gpu.oom" and "cascade.remote_error" in codes

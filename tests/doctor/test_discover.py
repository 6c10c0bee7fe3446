"""Files of any name from anywhere: hostile ones are bounded, and the answer says so."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.evidence.source import LINE_LIMIT, Source, looks_like_text, rank_in_name
from launcher.errors import InputError


def test_a_missing_path_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        discover([tmp_path / "nothing"])


def test_nothing_to_look_at_is_unknown_never_healthy(tmp_path: Path) -> None:
    assert diagnose(discover([tmp_path])).answer == "unknown"


def test_lines_are_bounded_and_numbered(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\r\n" + b"x" * (3 * LINE_LIMIT) + b"\nth\0ree\nlast")
    source = Source("log", path)
    lines = list(source.lines())
    assert [(number, len(text)) for number, text in lines] == [(1, 3), (2, LINE_LIMIT), (3, 5), (4, 4)]
    assert "longer" in source.gaps[0].why


def test_a_line_of_many_chunks_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as stream:
        for _ in range(64):
            stream.write(b"y" * (1 << 20))
        stream.write(b"\nend\n")
    assert [text for number, text in Source("log", path).lines() if number > 1] == ["end"]


def test_holes_of_a_sparse_file_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as stream:
        stream.write(b"head\n")
        stream.seek(10 << 30)
        stream.write(b"\ntail\n")
    texts = [text for _, text in Source("sparse", path).lines()]
    assert texts[0] == "head"
    assert texts[-1] == "tail"


@pytest.mark.parametrize("name", ["../escape", "/absolute", "a/../../b"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_no_member_leaves_the_folder(tmp_path: Path, name: str, kind: str) -> None:
    archive = tmp_path / "bundle"
    if kind == "tar":
        with tarfile.open(archive, "w:gz") as tar:
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"evil"))
    else:
        with zipfile.ZipFile(archive, "w") as bundle:
            bundle.writestr(name, "evil")
    found = discover([archive])
    assert any("refused" in gap.why for gap in found.gaps)
    assert diagnose(found).answer == "unknown"
    assert not list(tmp_path.parent.rglob("escape"))


def test_a_bomb_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doctor.archives.MAX_BYTES", 1 << 20)
    archive = tmp_path / "bomb.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("zeros", bytes(8 << 20))
    assert any("more than it may" in gap.why for gap in discover([archive]).gaps)


def test_pipes_and_links_are_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert not discover([tmp_path]).gaps


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("ranks/3/attempt-0/stderr", 3),
        ("nccl_trace_rank_12", 12),
        ("pyspy-rank0.txt", 0),
        ("fr_7.pkl", 7),
        ("node4-rank9.log", 9),
        ("log.txt", None),
        ("10-20", None),
    ],
)
def test_the_rank_in_a_name(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


def test_text_is_told_from_binary() -> None:
    assert looks_like_text(b"a line\n\0\0\0another\x1b[31m\n")
    assert not looks_like_text(os.urandom(4096))
    assert not looks_like_text(b"\0\0")

"""The page of benchmarks: every program has its sections, and results become tables in their places."""

from __future__ import annotations

import pytest

from bench.__main__ import PAGE, SECTIONS, replaced

PROGRAMS = {path.stem for path in PAGE.parents[1].joinpath("bench").glob("*.py")} - {"__init__", "__main__", "pages"}
SAMPLE = {"wall_s": 2.0, "cpu_s": 0.5, "peak_bytes": 30e6}
RUN = {"first_step_s": 18.5, "whole_s": 34.0}
DOCUMENTS = {
    "launch": {"rounds": 1, "dlaunch": [RUN], "torchrun": [RUN], "commands": {"dlaunch ps": 0.03}},
    "hosts": {"hosts": 4, "rounds": 1, "dlaunch": [SAMPLE], "clush": [SAMPLE], "left": [{"sshd_sessions": 0}]},
    "preflight": {"hosts": 4, "first_s": 3.0, "preflight": [SAMPLE], "clush": [SAMPLE]},
    "slurm": {"dlaunch": [2.0], "plain": [1.0], "ps": [2.0], "squeue": [0.04], "queue": 9, "squeue_calls_of_one_ps": 1},
    "placement": {"rows": [{"ranks": 128, "seconds": 0.5, "cpu_s": 2.0, "peak_mb": 30.0}]},
    "plan": {
        "measured": "links are as measured",
        "rows": [{"mesh": "tp=2", "overlapped_s": 0.02, "predicted_s": 1.8, "measured_s": 2.0, "error": -0.1}],
    },
    "tui": {
        "results": [
            {"case": "files", "ranks": 64, "cpu": 0.02, "rss": 30.0, "first_paint": 2.0, "first_paint_cpu": 0.3,
             "key_to_paint": 0.01, "key_to_paint_cpu": 0.01}
        ]
    },
    "doctor": {"ranks": 8, "bytes": 5e6, "load_s": 0.5, "ours": SAMPLE, "torchfrtrace": SAMPLE},
    "doctor-large": {"ranks": 8, "bytes": 5e6, "load_s": None, "ours": SAMPLE},
    "doctor-log": {"bytes": 50e6, "ours": SAMPLE, "grep": SAMPLE},
    "workloads": {
        "results": [
            {"strategy": "ddp", "ranks": 2, "ours_s": 2.0, "minimal_s": 2.0, "overhead": 0.0, "cpu_overhead": 0.01,
             "tokens_per_s": 1000.0}
        ],
        "instruments": [{"what": "progress record", "cost_s": 2e-5, "per_step": 1.0, "share": 0.0004}],
    },
}  # fmt: skip


def test_every_program_has_a_section() -> None:
    assert {section.program for section in SECTIONS.values()} == PROGRAMS


@pytest.mark.parametrize("name", SECTIONS)
def test_a_result_becomes_a_table_in_its_place(name: str) -> None:
    lines = SECTIONS[name].lines(DOCUMENTS[name])
    page = replaced(PAGE.read_text(), name, lines)
    written = page.partition(f"<!-- bench:{name} -->")[2].partition("<!-- /bench -->")[0]
    assert written.strip() == "\n".join(lines)
    assert any("2.00 s" in line or "18.50 s" in line for line in lines), lines
    assert replaced(page, name, lines) == page


def test_a_section_that_the_page_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 sections"):
        replaced("# Nothing", "launch", [])

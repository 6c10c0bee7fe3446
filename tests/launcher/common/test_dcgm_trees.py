"""The trees of dcgmi, drawn and as JSON."""

from __future__ import annotations

import json

import pytest

from launcher.common.node_reports import dcgm_trees

_HEALTH = """\
+---------------------------+----------------------------------+
| Health Monitor Report                                        |
+===========================+==================================+
| Overall Health            | Failure                          |
| GPU                       |                                  |
| -> 2                      | Failure                          |
|    -> Errors              |                                  |
|       -> NVLINK system    | Failure                          |
|                           | Link 4 of GPU 2 is down.         |
|                           | Look at it.                      |
|       -> Thermal system   | Warning                          |
|                           | It is warm.                      |
| NvSwitch                  |                                  |
| -> 7                      | Failure                          |
|    -> Errors              |                                  |
|       -> NVLINK system    | Failure                          |
+---------------------------+----------------------------------+
"""


def test_what_is_not_healthy() -> None:
    found = dcgm_trees.parse_health(_HEALTH)
    assert [(one.test, one.gpu, one.status, one.text) for one in found.not_pass] == [
        ("NVLINK system", "2", "Fail", "Link 4 of GPU 2 is down. Look at it."),
        ("Thermal system", "2", "Warn", "It is warm."),
        ("NVLINK system", None, "Fail", "NvSwitch 7: Failure"),
    ]
    assert not found.passed


def test_the_same_as_json() -> None:
    system = {"value": "Failure", "overflow": ["Link 4 of GPU 2", "is down."]}
    gpu = {"value": "Failure", "children": {"Errors": {"children": {"NVLINK system": system}}}}
    body = {"GPU": {"children": {"2": gpu}}, "Overall Health": {"value": "Failure"}}
    (one,) = dcgm_trees.parse_health(json.dumps({"body": body, "header": ["Health Monitor Report"]})).not_pass
    assert (one.test, one.gpu, one.status, one.text) == ("NVLINK system", "2", "Fail", "Link 4 of GPU 2 is down.")


@pytest.mark.parametrize(("state", "bad"), [("Healthy", 0), ("Warning", 1)])
def test_a_report_of_the_whole_alone(state: str, bad: int) -> None:
    text = f"| Health Monitor Report     |\n+====+====+\n| Overall Health:  | {state}   |\n+----+----+\n"
    assert len(dcgm_trees.parse_health(text).not_pass) == bad


def test_error_counters_of_links() -> None:
    rows = [
        "| Link 0 |   |",
        "| -> Replay Error | 0 |",
        "| Link 11 |  |",
        "| -> Replay Error | 5 |",
        "| -> CRC | N/A |",
    ]
    text = "\n".join(["| NVLINK Error Counts  |", "| GPU 3          |", "+=====+=====+", *rows])
    (gpu,) = dcgm_trees.parse_nvlink_errors(text)
    assert gpu.gpu == 3 and gpu.errors == {(0, "Replay Error"): 0, (11, "Replay Error"): 5}

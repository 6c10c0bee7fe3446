"""Outputs of many Slurm versions and their right answers, which lie beside the checkout; skipped where they do not.

Each file is read by what it is, told from its index, never by its content: others like them must come out right too.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from launcher.hosts.names import expand, fold
from launcher.slurm import values
from launcher.slurm.endings import StepEnd, step_end
from launcher.slurm.reasons import pending_reason
from launcher.slurm.refusals import refusal
from launcher.slurm.states import job_state, job_state_from_words, node_state, node_state_from_words
from launcher.slurm.status import (
    SlurmError,
    job_from_json,
    jobs_from_scontrol,
    load_json,
    node_from_json,
    nodes_from_scontrol,
    release,
)
from launcher.slurm.text import delimited, scontrol_records, split_reason, table, tres
from launcher.slurm.topology import parse_topology

CORPUS = Path(os.environ.get("DLAUNCH_CORPUS", Path(__file__).parents[4] / "shared")) / "slurm"
EXPECTED: dict[str, Any] = (
    json.loads((CORPUS / "expected.json").read_text()) if (CORPUS / "expected.json").exists() else {}
)
NONE = "no corpus beside the checkout"


def files(*words: str) -> list[Any]:
    """The corpus files whose name has one of `words`."""
    found = [name for name in EXPECTED if any(word in name for word in words)]
    return found or [pytest.param("", marks=pytest.mark.skip(reason=NONE))]


def text(name: str) -> str:
    return (CORPUS / name).read_bytes().decode(errors="replace")


@pytest.mark.parametrize("name", files("scontrol-out"))
def test_scontrol_shows_jobs(name: str) -> None:
    records = [record.fields for record in scontrol_records(text(name))]
    assert len(records) == EXPECTED[name]["job_count"]
    for record, expected in zip(records, EXPECTED[name]["jobs"], strict=True):
        assert {key: record.get(key) for key in expected} == expected
    for job, expected in zip(jobs_from_scontrol(text(name)), EXPECTED[name]["jobs"], strict=True):
        assert (job.id, job.state.name, job.nodes) == (expected["JobId"], expected["JobState"], expected["NodeList"])
        assert str(job.node_count) == expected["NumNodes"]


@pytest.mark.parametrize("name", files("scontrol-show-partition"))
def test_scontrol_shows_partitions(name: str) -> None:
    records = [record.fields for record in scontrol_records(text(name))]
    for record, expected in zip(records, EXPECTED[name]["partitions"], strict=True):
        assert {key: record.get(key) for key in expected} == expected


@pytest.mark.parametrize("name", files("scontrol-show-nodes"))
def test_scontrol_shows_nodes(name: str) -> None:
    records = [record.fields for record in scontrol_records(text(name))]
    for record, expected in zip(records, EXPECTED[name]["nodes"], strict=True):
        assert {key: record.get(key) for key in expected} == expected


@pytest.mark.parametrize("name", files("scontrol-show-node-"))
def test_scontrol_shows_a_node(name: str) -> None:
    expected = EXPECTED[name]
    (record,) = scontrol_records(text(name))
    reason, user, time = split_reason(record.fields["Reason"])
    assert record.fields["NodeName"] == expected["NodeName"]
    assert (reason, user, time) == (expected["reason"], expected["reason_user"], expected["reason_time"])
    assert (record.fields["Gres"], record.fields["Version"]) == (expected["gres"], expected["version"])
    assert tres(record.fields["CfgTRES"]) == expected["CfgTRES"]
    assert tres(record.fields["AllocTRES"]) == expected["AllocTRES"]
    (node,) = nodes_from_scontrol(text(name))
    assert [node.state.base.upper(), *node.state.flags] == expected["state"]


def _same(value: Any, expected: Any) -> bool:
    return value == (values.number(expected) if isinstance(expected, dict) and "set" in expected else expected)


@pytest.mark.parametrize("name", files("job-json", "squeue-json-"))
def test_json_of_a_job(name: str) -> None:
    expected = EXPECTED[name]
    if "errors" in expected:
        with pytest.raises(SlurmError, match=expected["errors"][0][1]) as raised:
            load_json(text(name))
        assert raised.value.number == expected["errors"][0][0]
        return
    facts, document = expected["facts"], load_json(text(name))
    job = next(job for job in map(job_from_json, document["jobs"]) if job.id == str(facts["job_id"]))
    assert release(document) == expected["release"]
    assert job.state == job_state_from_words(values.words(facts["job_state"]))
    assert (job.nodes, job.partition, job.reason) == (facts["nodes"], facts["partition"], facts["state_reason"])
    assert _same(job.node_count, facts["node_count"])
    assert job.time_limit_s == (values.number(facts["time_limit"]) or 0) * 60
    assert _same(job.started, facts["start_time"])
    assert _same(job.ended, facts["end_time"])
    assert _same(job.task_id, facts["array_task_id"])
    assert (list(job.devices), job.tres) == (facts["gres_detail"], facts["tres_alloc_str"])
    assert job.exit_code == values.exit_code(facts["exit_code"])


@pytest.mark.parametrize("name", files("sacct-json"))
def test_json_of_accounting(name: str) -> None:
    facts = EXPECTED[name]["facts"]
    job = next(job for job in map(job_from_json, load_json(text(name))["jobs"]) if job.id == str(facts["job_id"]))
    assert [job.state.name] == facts["state"]["current"]
    assert (job.reason, job.nodes) == (facts["state"]["reason"], facts["nodes"])
    times = facts["time"]
    assert (job.started, job.ended, job.submitted) == (times["start"], times["end"], times["submission"])
    assert job.exit_code == values.exit_code(facts["exit_code"])


@pytest.mark.parametrize("name", files("node-json", "sinfo-json-"))
def test_json_of_a_node(name: str) -> None:
    facts, document = EXPECTED[name]["facts"], load_json(text(name))
    node = next(node for node in map(node_from_json, document["nodes"]) if node.name == facts["name"])
    state = [*values.words(facts["state"]), *facts.get("state_flags", ())]
    assert release(document) == EXPECTED[name]["release"]
    assert node.state == node_state_from_words(state)
    assert node.reason == facts["reason"]
    assert list(node.partitions) == facts["partitions"]
    assert node.memory == facts["real_memory"]
    assert _same(node.memory_free, facts.get("free_mem", facts.get("free_memory")))
    assert node.cpus_allocated == facts["alloc_cpus"]
    assert node.gres == tuple(values.generic_resources(facts["gres"]))


@pytest.mark.parametrize("name", files("ping-json"))
def test_json_of_ping(name: str) -> None:
    pings = load_json(text(name))["pings"]
    assert [{key: ping[key] for key in ("hostname", "mode", "pinged")} for ping in pings] == [
        {key: ping[key] for key in ("hostname", "mode", "pinged")} for ping in EXPECTED[name]["pings"]
    ]


@pytest.mark.parametrize("name", files("node-states-list"))
def test_lists_of_node_states(name: str) -> None:
    rows = delimited(text(name), ",", ["node", "state"]).rows
    assert len(rows) == EXPECTED[name]["rows"]
    assert Counter(row["state"] for row in rows) == EXPECTED[name]["states"]


@pytest.mark.parametrize("name", files("node-state-suffixes"))
def test_node_state_tokens(name: str) -> None:
    for token, expected in EXPECTED[name]["tokens"].items():
        state = node_state(token)
        assert (state.base, state.suffix, list(state.flags)) == (
            expected["base"],
            expected["suffix"],
            expected.get("flags", []),
        )


@pytest.mark.parametrize("name", files("squeue-id-state"))
def test_ids_and_states_of_jobs(name: str) -> None:
    rows = delimited(text(name), ",", ["id", "state"]).rows
    assert Counter(job_state(row["state"]).name for row in rows) == EXPECTED[name]["states"]


@pytest.mark.parametrize("name", files("sinfo-pipe"))
def test_rows_with_pipes_and_padding(name: str) -> None:
    rows = delimited(text(name), "|").rows
    assert len(rows) == EXPECTED[name]["rows"]
    for row, expected in zip(rows, EXPECTED[name]["check"], strict=False):
        assert {key: row[key] for key in expected} == expected


HASH_COLUMNS = {
    "tres": 0, "array_id": 2, "job_id": 3, "name": 4, "limit": 5, "state": 9, "nodes": 12, "left": 13, "used": 14,
    "nodelist": 15,
}  # fmt: skip


@pytest.mark.parametrize("name", files("squeue-hash"))
def test_rows_with_a_delimiter_of_two_characters(name: str) -> None:
    width = text(name).splitlines()[0].count("|#")
    rows = delimited(text(name), "|#", [str(column) for column in range(width)]).rows
    for row, expected in zip(rows, EXPECTED[name]["rows"], strict=True):
        assert {key: row[str(HASH_COLUMNS[key])] for key in expected} == expected


@pytest.mark.parametrize("name", files("squeue-caret"))
def test_rows_with_carets(name: str) -> None:
    found = {line.split("^^^")[0]: line.split("^^^") for line in text(name).splitlines()}
    rows = delimited(text(name), "^^^", [str(column) for column in range(len(next(iter(found.values()))))]).rows
    for job, (state, nodes) in EXPECTED[name]["jobs"].items():
        row = next(row for row in rows if row["0"] == job)
        assert row["1"] == state
        assert nodes in row.values()


@pytest.mark.parametrize("name", files("sacct-parsable"))
def test_wide_accounting_rows(name: str) -> None:
    header = text(name).splitlines()[0].split("|")
    table_ = delimited(text(name), "|")
    assert len(header) == EXPECTED[name]["columns"]
    assert header[:4] == EXPECTED[name]["first_columns"]
    assert (len(table_.rows), table_.skipped) == (EXPECTED[name]["rows"], 0)


@pytest.mark.parametrize("name", files("sacct-multiline"))
def test_accounting_rows_over_two_lines(name: str) -> None:
    found = delimited(text(name), "|#")
    assert found.skipped == 0
    assert {len(row) for row in found.rows} == {len(set(text(name).splitlines()[0].split("|#")))}
    assert len(found.rows) == sum(EXPECTED[name]["delimiters_per_line"]) // EXPECTED[name]["header_delimiters"] - 1


@pytest.mark.parametrize("name", files("sacct-invalid-lines"))
def test_broken_accounting_rows_are_counted(name: str) -> None:
    header, *rows = EXPECTED[name]["fields_per_line"]
    assert delimited(text(name), "|").skipped == sum(fields != header for fields in rows)


@pytest.mark.parametrize("name", files("invalid-utf8"))
def test_names_that_are_not_utf8(name: str) -> None:
    found = delimited(text(name), "|")
    assert len(found.rows) + 1 == len([line for line in text(name).splitlines() if line])
    assert found.skipped == 0


@pytest.mark.parametrize("name", files("unit-separator"))
def test_unit_separators(name: str) -> None:
    found = delimited(text(name), "\x1f")
    assert len(text(name).splitlines()[0].split("\x1f")) == EXPECTED[name]["columns"]
    assert ("�" in found.rows[0]["NAME"]) == EXPECTED[name]["has_replacement_char"]


@pytest.mark.parametrize("name", files("gres-long-hostnames"))
def test_generic_resources_of_nodes(name: str) -> None:
    rows = [line.split() for line in text(name).splitlines()]
    assert rows == EXPECTED[name]["rows"]
    for _, configured, used, _ in rows:
        (have,), (use,) = values.generic_resources(configured), values.generic_resources(used)
        assert (have.name, have.model, have.count) == ("gpu", use.model, 8)
        assert len(use.indexes or ()) == use.count


def _blocks(content: str) -> list[str]:
    """The tables of a page of examples: each begins with the line of its command."""
    found: list[list[str]] = []
    for line in content.splitlines():
        if line.startswith(("$ ", "# ")):
            found.append([])
        elif found:
            found[-1].append(line)
    return ["\n".join(block) for block in found] or [content]


@pytest.mark.parametrize("name", files("man-examples"))
def test_tables_of_the_manual(name: str) -> None:
    expected, tables = EXPECTED[name], [table(block) for block in _blocks(text(name))]
    assert all(tables)
    assert len(tables) == expected.get("layouts", len(tables))
    rows = [row for rows in tables for row in rows]
    places = {row["JOBID"]: row["NODELIST(REASON)"] for row in rows if "NODELIST(REASON)" in row}
    assert places.items() >= {job: f"({reason})" for job, reason in expected.get("pending", {}).items()}.items()
    assert places.items() >= expected.get("running", {}).items()
    assert [row["STEPID"] for row in rows if "STEPID" in row] == expected.get("steps", [])


@pytest.mark.parametrize("name", files("sacct-end-states"))
def test_cut_cells_of_accounting(name: str) -> None:
    rows = {row["JobID"]: row for row in table(text(name))}
    for job, state in EXPECTED[name]["jobs"].items():
        assert job_state(rows[job.replace("...]", "+")]["State"]).name == state


@pytest.mark.parametrize("name", files("wrapped-nodelist", "hyperpod"))
def test_partitions_with_wrapped_lists_of_nodes(name: str) -> None:
    rows = table(text(name))
    found = [[row["PARTITION"].rstrip("*"), int(row["NODES"]), row["STATE"]] for row in rows]
    assert found == [[partition, nodes, state] for partition, nodes, state, *_ in EXPECTED[name]["rows"]]
    assert all("," not in row["NODELIST"][:1] and row["NODELIST"] for row in rows)


@pytest.mark.parametrize("name", files("sinfo-R"))
def test_reasons_with_blanks(name: str) -> None:
    rows = [[row["REASON"], row["USER"], row["TIMESTAMP"], row["NODELIST"]] for row in table(text(name))]
    assert [row[:3] for row in rows] == [row[:3] for row in EXPECTED[name]["rows"]]


@pytest.mark.parametrize("name", files("counts-slashes"))
def test_counts_with_slashes(name: str) -> None:
    numbers = [int(part) for part in text(name).strip().split("/")]
    assert numbers[:2] + numbers[2:] == [*EXPECTED[name]["nodes"], *EXPECTED[name]["cpus"]]


@pytest.mark.parametrize("name", files("topology"))
def test_topologies(name: str) -> None:
    expected, topology = EXPECTED[name], parse_topology(text(name))
    for switch, facts in expected.get("switches", {}).items():
        found = topology.switches[switch]
        assert (found.level, list(found.nodes), list(found.children)) == (
            facts["level"],
            facts["nodes"],
            facts["children"],
        )
    assert {block: len(nodes) for block, nodes in topology.blocks.items()} == expected.get("blocks", {})
    assert list(topology.block_sizes) == expected.get("block_sizes", [])
    for leaf, nodes in expected.get("leaf_nodes", {}).items():
        assert topology.leaves[leaf] == tuple(nodes)


def _as_expected(end: StepEnd, form: Any) -> Any:
    if isinstance(form, str):
        return f"{end.cause} {end.nodes}" if form != end.cause and end.nodes else end.cause
    facts = {"node": end.nodes, "nodes": end.nodes, "tasks": end.tasks, "cause": end.cause, "exit": end.exit_status}
    facts["task"] = int(end.tasks) if end.tasks.isdigit() else None
    return {key: facts[key] for key in form}


@pytest.mark.parametrize("name", files("end-messages"))
def test_why_steps_ended(name: str) -> None:
    ends = EXPECTED[name]["ends"]
    for number, line in enumerate(text(name).splitlines(), 1):
        end = step_end(line)
        if str(number) in ends:
            assert end is not None, line
            assert _as_expected(end, ends[str(number)]) == ends[str(number)]
        else:
            assert end is None, line


@pytest.mark.parametrize("name", files("client-errors"))
def test_client_errors(name: str) -> None:
    for call in re.split(r"^\$ ", text(name), flags=re.MULTILINE)[1:]:
        command, _, said = call.partition("\n")
        found = refusal(re.sub(r"^\[exit \d+\]$", "", said, flags=re.MULTILINE))
        unreachable = "Unable to contact slurm controller" in said or "is DOWN" in said
        assert (found.kind == "unreachable") == unreachable, command
        assert found.message


@pytest.mark.parametrize("name", files("jsonl-reasons"))
def test_reasons_with_brackets(name: str) -> None:
    lines = [
        line for number, line in enumerate(text(name).splitlines(), 1) if number not in EXPECTED[name]["lines_not_json"]
    ]
    waiting = [job for job in map(json.loads, lines) if job["state"] == "PENDING"]
    for job in waiting:
        reason = pending_reason(job["r"])
        assert reason.code in job["r"]
        assert not set(reason.code) & set("(),:")
        assert reason.text != "waits", f"no words for {job['r']}"


def _differs(expression: str) -> bool:
    """Brackets side by side, and one that is not closed: ClusterShell refuses what scontrol reads."""
    return "][" in expression or expression.count("[") != expression.count("]")


@pytest.mark.parametrize("name", files("hostlists"))
def test_hostlists(name: str) -> None:
    """Where ClusterShell and scontrol agree; how they differ is in docs/slurm.md."""
    for expression, answers in EXPECTED[name]["expressions"].items():
        answer = answers.get("clustershell", answers)
        if _differs(expression):
            continue
        if "hosts" in answer:
            assert set(expand(expression)) == set(answer["hosts"]), expression
        elif "hostlistsorted" in answer:
            assert set(expand(fold(expression.split(",")))) == set(expression.split(","))
        elif "count" in answer:
            hosts = set(expand(expression))
            assert len(hosts) == answer["count"]
            assert {answer["first"], answer["second"], answer["last"]} <= hosts

"""Parsers of Slurm's answers, on texts of our own."""

from __future__ import annotations

import math

import pytest

from launcher.slurm import values
from launcher.slurm.endings import end_on, step_end
from launcher.slurm.reasons import pending_reason
from launcher.slurm.refusals import refusal
from launcher.slurm.states import job_state, job_state_from_words, node_state
from launcher.slurm.status import (
    SEPARATOR,
    jobs_from_accounting,
    jobs_from_queue,
    jobs_from_scontrol,
    nodes_from_scontrol,
)
from launcher.slurm.text import delimited, scontrol_records, split_reason, table
from launcher.slurm.topology import node_order, parse_topology
from launcher.slurm.values import ExitCode


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-00:00:00", 86400),
        ("2-05", 2 * 86400 + 5 * 3600),
        ("30:00", 1800),
        ("90", 5400),
        ("1:00:00", 3600),
        ("UNLIMITED", math.inf),
        ("N/A", None),
        ("nonsense", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert values.duration(text) == seconds


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5),
        (None, None),
        ({"set": True, "infinite": False, "number": 7}, 7),
        ({"set": False, "number": 0}, None),
        ({"set": True, "infinite": True, "number": 0}, math.inf),
        ("5", None),
        (True, None),
    ],
)
def test_numbers_of_every_version(value: object, expected: float | None) -> None:
    assert values.number(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1:0", ExitCode(1)),
        ("0:125", ExitCode(0, 125)),
        ("2", ExitCode(2)),
        (256, ExitCode(1)),
        (9, ExitCode(0, 9)),
        ("", None),
        (None, None),
    ],
)
def test_exit_codes(value: object, expected: ExitCode | None) -> None:
    assert values.exit_code(value) == expected


def test_generic_resources_with_models_sockets_and_indexes() -> None:
    first, second, third = values.generic_resources("gpu:a100:4(S:0-1),gpu:h100:2(IDX:0,3),shard:16")
    assert (first.model, first.count, first.indexes) == ("a100", 4, None)
    assert (second.model, second.count, second.indexes) == ("h100", 2, (0, 3))
    assert (third.name, third.model, third.count) == ("shard", "", 16)
    assert [resource.count for resource in values.generic_resources("gres/gpu=8")] == [8]
    assert values.generic_resources("(null)") == values.generic_resources("N/A") == []
    assert [resource.count for resource in values.generic_resources("gpu:2,nvme:1.5T")] == [2, 3 * 2**39]


@pytest.mark.parametrize(
    ("text", "name", "phase"),
    [
        ("PD", "PENDING", "waiting"),
        ("CANCELLED by 1000", "CANCELLED", "failed"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY", "failed"),
        ("R", "RUNNING", "running"),
        ("CG", "COMPLETING", "ending"),
        ("COMPLETED", "COMPLETED", "succeeded"),
        ("", "", "unknown"),
        ("SOMETHING_NEW", "SOMETHING_NEW", "unknown"),
    ],
)
def test_states_of_jobs(text: str, name: str, phase: str) -> None:
    assert (job_state(text).name, job_state(text).phase) == (name, phase)


def test_a_flag_behind_the_state_says_more() -> None:
    assert job_state_from_words(["COMPLETED", "COMPLETING"]).name == "COMPLETING"
    assert job_state_from_words(["PENDING", "LAUNCH_FAILED"]).name == "PENDING"


@pytest.mark.parametrize(
    ("token", "takes_jobs"),
    [
        ("idle", True),
        ("mixed", True),
        ("idle*", False),
        ("IDLE+DRAIN", False),
        ("alloc", True),
        ("down", False),
        ("MIXED+CLOUD", True),
        ("IDLE+CLOUD+POWERED_DOWN", False),
        ("mix-", True),
        ("idle+", True),
        ("IDLE+BLOCKED", False),
        ("maint", False),
    ],
)
def test_which_nodes_take_jobs(token: str, takes_jobs: bool) -> None:
    assert node_state(token).takes_jobs is takes_jobs


def test_the_queue_as_we_ask_for_it() -> None:
    cells = ["12_3", "PENDING", "Priority", "ann", "gpu", "", "4", "2031-05-01T10:00:00", "1:00:00", "N/A", "/w", "a b"]
    (job,) = jobs_from_queue(SEPARATOR.join(cells) + "\n")
    assert (job.id, job.state.name, job.reason, job.node_count, job.name) == ("12_3", "PENDING", "Priority", 4, "a b")
    assert job.started is not None
    assert job.submitted is None
    assert job.time_limit_s == 3600


def test_accounting_as_we_ask_for_it() -> None:
    row = ["7", "CANCELLED by 0", "0:15", "2031-05-01T10:00:00", "Unknown", "n[1-2]", "2", "None", "gpu", "ann", "x"]
    step = ["7.0", *row[1:]]
    (job,) = jobs_from_accounting("\n".join(SEPARATOR.join(cells) for cells in (row, step)))
    assert (job.id, job.state.name, job.exit_code, job.ended) == ("7", "CANCELLED", ExitCode(0, 15), None)


SHOWN = """JobId=7 JobName=odd name=1 here
   JobState=RUNNING Reason=None Restarts=2 ExitCode=0:0
   StartTime=2031-05-01T10:00:00 EndTime=Unknown
   NodeList=n[1-2]
   NumNodes=2 NumCPUs=8
     Nodes=n1 CPU_IDs=0-3 Mem=0 GRES=gpu:8(IDX:0-7)
     Nodes=n2 CPU_IDs=0-3 Mem=0 GRES=gpu:4(IDX:0-3)
   Command=/bin/run a=b c
"""


def test_a_job_as_scontrol_shows_it() -> None:
    (job,) = jobs_from_scontrol(SHOWN)
    assert (job.name, job.command, job.restarts, job.ended) == ("odd name=1 here", "/bin/run a=b c", 2, None)
    assert job.devices == ("gpu:8(IDX:0-7)", "gpu:4(IDX:0-3)")


def test_one_line_to_a_record() -> None:
    many = " ".join(f"Key{number}={number}" for number in range(20))
    first, second = scontrol_records(f"PartitionName=a {many} State=UP\nPartitionName=b {many} State=DOWN\n")
    assert (first.fields["State"], second.fields["State"]) == ("UP", "DOWN")


def test_reasons_with_and_without_their_author() -> None:
    assert split_reason("bad fan (0 < 1) [ops@2031-05-01T10:00:00]") == (
        "bad fan (0 < 1)",
        "ops",
        "2031-05-01T10:00:00",
    )
    assert split_reason("bad fan") == ("bad fan", "", "")


def test_a_record_over_two_lines_and_a_broken_one() -> None:
    rows = delimited("a|b|c\n1|two\nlines|3\n1|2|3|4|5\n4|5|6|\n1|2\n", "|")
    assert rows.rows == [{"a": "1", "b": "two\nlines", "c": "3"}, {"a": "4", "b": "5", "c": "6"}]
    assert rows.skipped == 2


def test_tables_with_empty_cells_below_a_rule() -> None:
    (row,) = table("JobID      Account State\n---------- ------- ------\n12.batch           FAILED\n")
    assert row == {"JobID": "12.batch", "Account": "", "State": "FAILED"}


def test_cells_with_blanks_below_a_rule() -> None:
    text = "JobID      JobName State  \n------- ---------- ------\n7.0     a long na+ FAILED\n"
    assert table(text) == [{"JobID": "7.0", "JobName": "a long na+", "State": "FAILED"}]


def test_a_list_that_goes_on_below_a_row_whose_rule_is_too_short() -> None:
    text = "JobID Nodes\n-----\n7\n,n[2-3]\n"
    assert table(text) == [{"JobID": "7", "Nodes": ",n[2-3]"}]


def test_nodes_go_by_switch_and_number_and_not_by_the_alphabet() -> None:
    places = {"n1": "spine.leaf1.n1", "n2": "spine.leaf2.n2", "n10": "spine.leaf1.n10", "n3": "spine.leaf1.n3"}
    assert node_order(places) == ["n1", "n3", "n10", "n2"]
    assert node_order({"n10": "", "n9": "n9"}) == ["n9", "n10"]


def test_blocks() -> None:
    topology = parse_topology("# a comment\nBlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2,4\n")
    assert topology.leaves == {"b1": ("n1", "n2"), "b2": ("n3", "n4")}
    assert topology.block_sizes == (2, 4)


def test_remarks_behind_an_entry_and_entries_over_two_lines() -> None:
    topology = parse_topology("SwitchName=s1 Nodes=n[1-2]  # rack 1\nSwitchName=s2 \\\n  Nodes=n3 #\n")
    assert topology.leaves == {"s1": ("n1", "n2"), "s2": ("n3",)}


YAML = """---
- topology: flat
  flat: true
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: s[1-2]
      - switch: s1
        nodes: n[1-2]
      - switch: s2
        nodes: n3
- topology: racks
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: n[1-2]
"""


def test_topology_yaml() -> None:
    tree = parse_topology(YAML)
    assert tree.leaves == {"s1": ("n1", "n2"), "s2": ("n3",)}
    assert (tree.switches["root"].level, tree.switches["root"].children) == (1, ("s1", "s2"))
    other = YAML.replace("cluster_default: true", "").replace(
        "topology: racks", "topology: racks\n  cluster_default: true"
    )
    blocks = parse_topology(other)
    assert (blocks.blocks, blocks.block_sizes) == ({"b1": ("n1", "n2")}, (2, 4))


def test_blocks_that_are_made_of_blocks_hold_no_nodes_of_their_own() -> None:
    text = "BlockName=b1 Nodes=n1 BlockSize=1\nAggregatedBlock=b[1-2] Nodes=n[1-2] BlockSize=2\n"
    assert parse_topology(text).blocks == {"b1": ("n1",)}


@pytest.mark.parametrize(
    ("line", "cause", "nodes"),
    [
        (
            "slurmstepd: error: *** JOB 3 ON n1 CANCELLED AT 2031-05-01 DUE TO TIME LIMIT ***",
            "time limit",
            "n1",
        ),
        (
            "slurmstepd-n2: error: *** JOB 3 ON n2 CANCELLED AT 2031-05-01 DUE TO JOB REQUEUE ***",
            "requeued",
            "n2",
        ),
        ("srun: error: n[1-2]: tasks 0-1: Terminated", "SIGTERM", "n[1-2]"),
        ("srun: error: n4: task 3: Exited with exit code 17", "exit 17", "n4"),
        ("srun: error: Node failure on n3", "node failure", "n3"),
        (
            "[2031-05-01T10:00:00.000] error: *** STEP 3.0 ON n1 CANCELLED AT 2031-05-01 DUE TO TIME LIMIT ***",
            "time limit",
            "n1",
        ),
        ("srun: error: Task launch for StepId=3.0 failed on node n1: Socket timed out", "step not started", "n1"),
    ],
)
def test_why_a_step_ended(line: str, cause: str, nodes: str) -> None:
    end = step_end(line)
    assert end is not None
    assert (end.cause, end.nodes) == (cause, nodes)


def test_other_lines_say_nothing_of_an_end() -> None:
    assert step_end("loss 3.14 at step 7") is None


def test_the_newest_end_on_a_node_is_its_reason() -> None:
    said = """warning: [not a host list
srun: error: n3: task 2: Exited with exit code 1
slurmstepd: error: Detected 1 oom_kill event in StepId=9.0. Some of the step tasks have been OOM Killed.
srun: error: n[1-3]: tasks 0-2: Out Of Memory
srun: error: n2: task 1: Killed
"""
    assert [end_on(node, said) for node in ("n1", "n2", "n3", "n4")] == ["oom", "SIGKILL", "oom", ""]


@pytest.mark.parametrize(
    ("said", "kind", "option"),
    [
        (
            "sbatch: unrecognized option '--segment=4'\nTry \"sbatch --help\" for more information",
            "option",
            "--segment",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
            "request",
            "",
        ),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "request", ""),
        ("squeue: error: Unable to contact slurm controller (connect failure)", "unreachable", ""),
        ("slurm_load_jobs error: Invalid job id specified", "unknown_job", ""),
        ("", "other", ""),
        ("sbatch: error: Batch job submission failed: Memory required by task is not available", "request", ""),
        ("sbatch: error: Batch job submission failed: Job dependency problem", "request", ""),
        ("slurm_load_jobs error: Protocol authentication error", "permission", ""),
        ("slurm_load_jobs error: Rate limit exceeded, please retry later", "unreachable", ""),
        ("sbatch: error: Batch job submission failed: Authentication credential expired", "permission", ""),
        ("srun: error: Unable to allocate resources: Requested nodes are busy", "request", ""),
        (
            "sbatch: error: Batch job submission failed: Requested topology configuration is not available",
            "request",
            "",
        ),
        ("scancel: error: Kill job error on job id 7: Job/step already completing or completed", "unknown_job", ""),
    ],
)
def test_refusals(said: str, kind: str, option: str) -> None:
    found = refusal(said)
    assert (found.kind, found.option) == (kind, option)
    assert not found.message.startswith("sbatch")


@pytest.mark.parametrize(
    ("reason", "code", "never"),
    [
        ("Resources", "Resources", False),
        ("(Priority)", "Priority", False),
        ("PartitionNodeLimit", "PartitionNodeLimit", True),
        ("((ReqNodeNotAvail, UnavailableNodes:n[1-2]))", "ReqNodeNotAvail", False),
        ("QOSMaxNodePerJobLimit", "QOSMaxNodePerJobLimit", True),
        ("(MaxMemPerLimit)", "MaxMemPerLimit", True),
        ("AssocGrpGRES", "AssocGrpGRES", False),
        ("None", "", False),
        ("NewInTheNextVersion", "NewInTheNextVersion", False),
    ],
)
def test_why_jobs_wait(reason: str, code: str, never: bool) -> None:
    found = pending_reason(reason)
    assert (found.code, found.never) == (code, never)
    assert found.text


def test_the_nodes_that_are_missing_are_named() -> None:
    assert "n[1-2]" in str(pending_reason("(ReqNodeNotAvail, UnavailableNodes:n[1-2])"))


def test_records_without_a_name_and_numbers_that_are_none_break_nothing() -> None:
    assert (
        jobs_from_scontrol("   JobState=RUNNING NodeList=n1\n") == [] and nodes_from_scontrol("   State=IDLE\n") == []
    )
    assert values.duration("9" * 5000) is None and values.generic_resources(f"gpu:{'9' * 5000}")[0].count == 1
    assert parse_topology("SwitchName=s0 Level=N/A Nodes=n1\n").switches["s0"].level == 0
    assert table("A B C\n- --\n1 2\n")[0]["A"] == "1"

"""Forms of NCCL's RAS that the program writes for lone ranks, for errors and for uneven nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from doctor.evidence import EvidenceSet
from doctor.evidence.ras import is_ras, parse_ras
from doctor.rules.ras import find

_TAIL = "GPU 2 (NVML 6) managed by process 4242 on node 10.1.0.9"
_TABLE = """\
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""


def _found(text: str) -> list[Any]:
    return list(find(EvidenceSet([parse_ras(text, "x")], [])))


@pytest.mark.parametrize(("said", "count"), [("launched up to operation 17", 17), ("not launched any operations", 0)])
def test_a_rank_that_is_alone_behind_is_named(said: str, count: int) -> None:
    text = f"""#0-0 (00ab) MISMATCH
  Communicator ranks have different AllReduce operation counts
  15 ranks have launched up to operation 40
  Rank 10 has {said} -- {_TAIL}
"""
    (finding,) = _found(text)
    assert is_ras(text.encode()) and finding.ranks == (10,) and finding.hosts == ("10.1.0.9",)
    assert parse_ras(text, "x").comms[0].counts[1].count == count


def test_operations_are_kept_apart() -> None:
    text = """#0-0 (00ab) MISMATCH
  Communicator ranks have different Broadcast operation counts
  15 ranks have launched up to operation 4
  Rank 1 has launched up to operation 3 -- GPU 1 managed by process 11 on node a

  Communicator ranks have different AllReduce operation counts
  15 ranks have launched up to operation 900
  Rank 1 has launched up to operation 899 -- GPU 1 managed by process 11 on node a
"""
    comms = parse_ras(text, "x").comms
    assert [(comm.op, [one.count for one in comm.counts]) for comm in comms] == [
        ("Broadcast", [4, 3]),
        ("AllReduce", [900, 899]),
    ]


def test_a_rank_alone_in_its_status_is_named() -> None:
    text = f"""#0-0 (00ab) MISMATCH
  Communicator ranks have different status
  7 ranks have status FINALIZE
  Rank 5 has status RUNNING -- {_TAIL}
"""
    (finding,) = _found(text)
    assert finding.code == "hang.teardown" and finding.ranks == (5,)


def test_who_reports_an_error_of_its_own_is_named_and_not_absent() -> None:
    text = f"""#0-0 (00ab) ERROR
  Asynchronous errors on 3 ranks
  2 ranks reported Remote process error
  Rank 1 -- {_TAIL}
  Rank 2 -- {_TAIL}
  Rank 0 reported System error -- {_TAIL}
"""
    assert parse_ras(text, "x").comms[0].missing == ()
    (finding,) = _found(text)
    assert (finding.code, finding.ranks, finding.hosts) == ("cascade.remote_error", (0,), ("10.1.0.9",))
    told = _document([_rank(0, async_error=2), _rank(1, async_error=6), _rank(2, init_state=7)], [])
    (finding,) = _found(told)
    assert finding.ranks == (0,) and "rank 0: System error; rank 1: Remote process error" in finding.cause


def test_uneven_nodes_mislead_nobody_and_unfilled_groups_are_passed_over() -> None:
    text = f"""Job summary
===========

  Nodes  Processes         GPUs
          per node  per process
      1          8            1
      1          2            1

  Nodes  Processes         GPUs
(total)    (total)      (total)
      2         10           10

Communicators... (0.000s)
=============

{_TABLE}    0         1         2       2-8        10        10   RUNNING  INCOMPLETE,MISMATCH
    1         3         0         0         0         0    NOCOMM  INCOMPLETE

#0-0 (00ab) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 9 -- {_TAIL}

#1-0 (93d7) INCOMPLETE
  Missing communicator data from 255 ranks
  Rank 105745522 -- {_TAIL}
"""
    report = parse_ras(text, "x")
    assert report.groups == ("INCOMPLETE,MISMATCH",)
    assert [peer.rank for comm in report.comms for peer in comm.missing] == [9]


def _rank(rank: int, count: int = 3, **status: Any) -> dict[str, Any]:
    state = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    counts = {"AllReduce": count, "Broadcast": count}
    return {
        "rank": rank,
        "host": "a",
        "pid": rank,
        "cuda_dev": 0,
        "status": state | status,
        "collective_counts": counts,
    }


def _document(ranks: list[dict[str, Any]], missing: list[dict[str, Any]]) -> str:
    comm = {"hash": "0xab", "size": len(ranks) + len(missing), "ranks": ranks, "missing_ranks": missing}
    return json.dumps({"nccl_version": "2.29.1", "communicators": [comm], "ras": {"timeouts_count": 0}})


def test_json_tells_of_all_operations_of_states_and_of_health() -> None:
    assert [one.severity for one in _found(_document([_rank(0), _rank(1)], []))] == ["info"]
    comms = parse_ras(_document([_rank(0, 4), _rank(1)], []), "x").comms
    assert [comm.op for comm in comms] == ["AllReduce", "Broadcast"]
    (finding,) = _found(_document([_rank(0), _rank(1, finalize_called=True)], []))
    assert finding.code == "hang.teardown" and finding.ranks == (0,)


def test_a_rank_that_answers_but_left_its_communicator_is_not_absent() -> None:
    left = {"rank": 1, "host": "a", "pid": 1, "status": {"unresponsive": False, "considered_dead": False}}
    (finding,) = _found(_document([_rank(0)], [left]))
    assert finding.code == "hang.teardown" and finding.ranks == (0,) and "rank 1 not in it" in finding.cause
    (finding,) = _found(_document([_rank(0, init_state=7)], [left]))
    assert finding.code == "hang.rendezvous" and finding.ranks == (1,)
    (finding,) = _found(_document([_rank(0)], [left | {"status": {"unresponsive": True}}]))
    assert finding.ranks == (1,)


def test_events_of_a_monitor_follow_one_another() -> None:
    peer = {"host": "10.1.0.9", "pid": 7, "cuda_devs": [3]}
    text = "\n".join(json.dumps({"event": "PEER_DEAD", "peer": one}) for one in (peer, {"addr": "10.1.0.8<4000>"}))
    assert is_ras(text.encode())
    assert [(event, one.host, one.gpu) for event, one in parse_ras(text, "x").events] == [("PEER_DEAD", "10.1.0.9", 3)]

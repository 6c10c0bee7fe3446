"""Documents of other versions: what is no field is passed over, what has no default must be there."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from launcher.common.fields import from_fields
from launcher.jobs.record import JobRecord, RankRecord
from launcher.render import NodePlan
from launcher.spec import JobSpec, MeshSpec


@dataclass(frozen=True)
class Pair:
    first: int
    second: tuple[int, ...] = ()


def test_keys_of_another_version_are_passed_over() -> None:
    assert from_fields(Pair, {"first": 1, "second": [2], "third": 3}, second=(2,)) == Pair(1, (2,))
    with pytest.raises(TypeError):
        from_fields(Pair, {"second": (2,)})


def test_a_jobs_record_of_another_version_is_read_in_all_its_parts() -> None:
    spec = JobSpec("t", "t.py", (), 1, 1, MeshSpec({"tp": 1}))
    record = JobRecord(
        job="t-1",
        name="t",
        cluster="c",
        kind="local",
        state="running",
        created=1.0,
        spec=spec.to_json(),
        mesh={"tp": 1},
        nodes=(NodePlan(0, "n0", "/d", "python3", "/b", "/w"),),
        ranks=(RankRecord(0, 0, 0, "n0", {"tp": 0}),),
    )
    document = record.to_json()
    for part in (document, document["spec"], document["settings"], *document["nodes"], *document["ranks"]):
        part["of_another_version"] = 1
    read = JobRecord.from_json(document)
    assert read.ranks == record.ranks and read.nodes == record.nodes and read.settings == record.settings
    assert JobSpec.from_json(read.spec) == spec

"""Losses as they were: a change of model, data order or initial weights shows here, and its commit gives the reason.

`python -m tests.workloads.test_golden` writes the file anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.workloads.reference import single_process
from workloads.common.config import preset

FILE = Path(__file__).with_name("golden.json")
CONFIGS = {"dense": preset("debug", layers=2), "mixture": preset("debug", layers=2, experts=4, top_k=2)}


@pytest.mark.parametrize("name", CONFIGS)
def test_losses_are_the_golden_ones(name: str) -> None:
    golden = json.loads(FILE.read_text())[name]
    assert single_process(CONFIGS[name]).losses == pytest.approx(golden, abs=2e-5)  # other processors round otherwise


if __name__ == "__main__":
    losses = {name: single_process(config).losses for name, config in CONFIGS.items()}
    FILE.write_text(json.dumps(losses, indent=1) + "\n")

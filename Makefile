# Each target sets up all that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest

.PHONY: run test check drill bench docs pictures

run: $(READY)
	$(BIN)/dlaunch run workloads/hsdp.py --nodes 4

# What fails is tried once more, alone: a deadline that a busy machine missed is kept then, a defect fails twice.
test: $(READY)
	-$(BIN)/python -m tests.lab.packages
	$(PYTEST) -n 2 --dist loadgroup || $(PYTEST) --last-failed --last-failed-no-failures none

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

drill: $(READY)
	$(BIN)/ddoctor drill --workload ddp --workload hsdp --workload tp --workload pp --workload nd

# Measures everything beside its peers, and writes docs/benchmarks.md; an hour, on a machine that does nothing else.
bench: $(READY)
	$(BIN)/python -m bench

docs: $(READY)
	$(BIN)/python -m launcher.inventory_reference > docs/inventory.md
	$(BIN)/python -m launcher.verdict_reference > docs/verdicts.md

# The pictures that the README shows, from a job that really runs.
pictures: $(READY)
	$(BIN)/python docs/pictures/draw.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

# Each target sets up all that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test check bench drill

run: $(READY)
	$(BIN)/dlaunch run workloads/hsdp.py --nodes 4

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not lab"
	$(BIN)/python -m pytest -m lab

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

drill: $(READY)
	$(BIN)/ddoctor drill --workload ddp --workload hsdp --workload tp --workload pp --workload nd

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

# What a user types. Each target makes .venv if it is not there; the second time that costs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all lint bench clean

demo: $(VENV)/user
	$(BIN)/arcmask reproduce quickstart

test: $(VENV)/dev
	$(BIN)/python -m pytest -m "not slow"

test-all: $(VENV)/dev
	$(BIN)/python -m pytest

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV)

$(VENV)/user: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all]"
	touch $@

$(VENV)/dev: $(VENV)/user
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all,dev]"
	touch $@

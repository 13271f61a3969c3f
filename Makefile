# What a user types. Each target makes .venv if it is not there; the second time that costs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all test-gpu lint docs bench clean

demo: $(VENV)/user
	$(BIN)/arcmask reproduce quickstart

test: $(VENV)/dev
	$(BIN)/python -m pytest -m "not slow" -n auto --maxprocesses 4 --dist worksteal

test-all: $(VENV)/dev
	$(BIN)/python -m pytest

test-gpu: $(VENV)/dev
	$(BIN)/python -m pytest -m gpu

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "site/index.html; for search, run: $(BIN)/python -m http.server --directory site"

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

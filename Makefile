# Two commands do all their own set-up: `make demo` and `make test`. Needed: Python >= 3.11, pip, make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TESTS ?=
WORKERS ?= 2

.PHONY: demo test check setup lock schemas clean

demo: setup
	@$(BIN)/windtunnel demo --root demo

test: check
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(TESTS)

check: setup
	$(BIN)/ruff check src tests harness
	$(BIN)/ruff format --check src tests harness
	$(BIN)/mypy

setup: $(VENV)/ready

# `--without-pip` and `pip --python`: Debian's Python has no ensurepip unless python3-venv is installed.
$(VENV)/ready: requirements-dev.lock pyproject.toml
	@echo "setting up $(VENV) (first time: a minute)"
	@$(PYTHON) -m venv --without-pip $(VENV)
	@$(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Hash-checked, for every Python from 3.11 on, without addresses of registries. Needs uv (`pip install uv`).
lock:
	uv pip compile --quiet --universal --no-header --generate-hashes --extra dev pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache

# Every target sets up and reuses .venv by itself; nothing needs to be typed first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Threads that wait do not spin: kinder, and quicker on a busy machine.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: help run test quick check static format docs results torture clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

run: $(READY)  ## set up, then train and measure the default (emoji)
	$(BIN)/iaa train

# These start processes or databases of their own, and do not share a process or the cores well.
ALONE := tests/gallery tests/serve/test_milvus.py tests/test_distributed.py tests/training/test_distributed.py \
  tests/boosting/test_boosted_distributed.py

test: $(READY)  ## set up, then run the tests, on all cores where that is safe
	$(BIN)/python -m pytest -q -n auto --dist loadfile --durations=20 $(addprefix --ignore=,$(ALONE))
	$(BIN)/python -m pytest -q $(ALONE)

quick: $(READY)  ## the daily loop: no training, no browser, no killed processes
	$(BIN)/python -m pytest -q -n auto --dist loadfile tests/method tests/retrieval tests/boosting/test_boosted_loss.py tests/test_losses.py \
	  tests/test_config.py tests/test_errors.py tests/test_files.py tests/presets

check: static docs test  ## all that CI runs: format, lint, types, import directions, documentation, tests

static: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## build the documentation into site/; a broken link or reference is an error
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(BIN)/mkdocs build --strict --quiet

results: $(READY)  ## hours: tune, train and write the results pages; CUB=folder or tar file of CUB-200-2011
	$(BIN)/python benchmarks/tuning.py $(if $(CUB),--cub $(CUB))
	test -f benchmarks/ceiling.json || $(BIN)/python benchmarks/ceiling.py $(if $(CUB),--cub $(CUB))
	test -f benchmarks/hardness.json || $(BIN)/python benchmarks/hardness.py $(if $(CUB),--cub $(CUB))
	$(BIN)/python benchmarks/results.py $(if $(CUB),--cub $(CUB))

torture: $(READY)  ## minutes: load and floods against iaa serve, killed training and embedding, damaged files
	$(BIN)/python benchmarks/torture.py
	$(BIN)/python benchmarks/fuzz_files.py

clean:  ## remove the environment and what the tools left
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("iaa needs Python 3.11 or newer, and $(PYTHON) is %d.%d: run make PYTHON=python3.11" % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev,docs]'
	@touch $@

# Everything sets itself up: a machine with Python (3.10 or newer), pip and make is enough.
#   make demo    the tool alone, on a real recorded hang
#   make check   lint, types, import contracts and every test that starts no job
#   make test    all of it, real jobs included
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The stamps tell what is installed already; a change of these files renews both.
NATIVE := setup.py src/whichrank/evidence/pickle/_native.c src/whichrank/evidence/readers/kineto/_scan.c \
    src/whichrank/evidence/text/_looks.c
TOOL := $(VENV)/.tool-installed
DEV := $(VENV)/.dev-installed
EXAMPLE := examples/skipped_collective
REPORT := demo-report.md
SCORE := score
WORKERS := 6
# Compiled modules are kept, whatever the shell says: every process of a test would compile them again.
export PYTHONDONTWRITEBYTECODE :=
SHARED := $(or $(WHICHRANK_SHARED),../shared)
CASES := $(addprefix tests/samples/,drills_nccl.tar.xz nccl_faults.tar.gz recorded_cases.tar.xz \
    logs_round_2.tar.xz logs_round_3.tar.xz) $(wildcard tests/samples/drills_gloo*.tar.xz $(SHARED)/cases/incidents)

.PHONY: help install demo check test bars lint types imports system quick unit bench score soak fuzz docs dist format clean

help:
	@sed -n '2,4s/^#  //p' Makefile
	@echo "  others: install bars bench score soak fuzz docs dist format clean"

install: $(DEV)

$(VENV)/pyvenv.cfg:
	@PYTHON="$(PYTHON)" tools/venv.sh $(VENV)

$(TOOL): pyproject.toml $(NATIVE) | $(VENV)/pyvenv.cfg
	@echo "Installing whichrank into $(VENV) …"
	@$(PIP) install --quiet --editable .
	@$(BIN)/python -m compileall -q src/whichrank
	@touch $@

$(DEV): pyproject.toml $(NATIVE) | $(VENV)/pyvenv.cfg
	@echo "Installing whichrank and what its tests need into $(VENV) (torch among it: this takes a while) …"
	@$(PIP) install --quiet --editable '.[dev]'
	@$(BIN)/python -m compileall -q src/whichrank
	@touch $@ $(TOOL)

# Exit code 1 means "findings", which is what the demo is about.
demo: $(TOOL)
	@$(BIN)/whichrank diagnose $(EXAMPLE) || test $$? -eq 1
	@$(BIN)/whichrank diagnose $(EXAMPLE) --quiet --format markdown --output $(REPORT) || test $$? -eq 1
	@echo && echo "The same as a ticket: $(REPORT)"

# Types and import contracts need one core each: they run beside the tests.
check: lint
	@$(MAKE) --no-print-directory -j 3 types imports quick

# What is installed comes from two places: both are asked at once.
test: $(VENV)/pyvenv.cfg
	@$(MAKE) --no-print-directory -j 2 install system
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory -j 3 types imports unit

# Programs of the system that some tests use for real.
system:
	@tools/system_packages.sh

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy --strict src

imports: $(DEV)
	$(BIN)/lint-imports

quick: $(DEV)
	@$(BIN)/python -m compileall -q src/whichrank
	$(BIN)/python -m pytest -q -rs -n 3 --dist loadfile --no-loadscope-reorder -m "not job and not bars" $(TESTS)

# Many tests wait for real jobs: some files run at once. tests/conftest.py says which tests may run again. In a fresh
# clone the tests are compiled once here, not by every worker, which takes each of them half a minute.
unit: $(DEV)
	@$(BIN)/python -m compileall -q src/whichrank
	@test -d .hypothesis || $(BIN)/python -m pytest -q --collect-only >/dev/null
	$(BIN)/python -m pytest -q -rsR -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not bars" $(TESTS)

# The repeated and the long measurements behind the figures in the documents.
bars: $(DEV) system
	@$(PIP) install --quiet --editable '.[bars]'
	$(BIN)/python -m pytest -q -rs -n 0 --timeout 3600 -m bars $(TESTS)

bench: $(DEV)
	@set -e; for file in benchmarks/[!_]*.py; do echo "== $$file"; $(BIN)/python $$file; done

# Recorded drills, cases, simulations and blind rounds, with the other tools beside: minutes. SCORE names where the tables
# go; LIVE=1 breaks real jobs besides, every fault over three seeds: hours.
score: $(DEV)
	@tools/nvrx.sh $(VENV) || echo "nvidia-resiliency-ext could not be had: it is left out"
	$(BIN)/python tools/simulated.py $(SCORE)/jobs/simulations
	@set -e; for corpus in $(CASES) $(SCORE)/jobs/simulations; do name=$$(basename $$corpus); name=$${name%%.*}; \
	    echo "== $$name"; $(BIN)/whichrank drill score --quiet --corpus $$corpus --out $(SCORE)/$$name >$(SCORE)/$$name.txt; \
	    grep '^all: ' $(SCORE)/$$name.txt; done
	$(if $(LIVE),$(BIN)/whichrank drill score --seeds 3 --jobs 2 --out $(SCORE))
	$(BIN)/python tools/scoreboard.py $(SCORE) --blind tests/samples/blind_rounds.csv > docs/scoreboard.md

soak: $(DEV) system
	$(BIN)/python tools/leaks.py $(EXAMPLE)
	$(BIN)/python tools/soak.py $(SOAK_SECONDS)
	$(BIN)/python tools/attack.py --seconds $(or $(SOAK_SECONDS),3600)
	$(BIN)/python tools/leftovers.py

fuzz: $(DEV)
	$(BIN)/python tools/fuzz.py

# Wheel and sdist; the wheel alone is installed into a fresh environment and runs the demo.
dist: $(DEV)
	@tools/dist.sh $(BIN)/python $(EXAMPLE)

docs: $(DEV)
	$(BIN)/python tools/rule_pages.py
	$(BIN)/python tools/readme.py

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache $(REPORT) $(SCORE)

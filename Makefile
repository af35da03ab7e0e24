# What a developer types.  `demo` and `test` set everything up by themselves; nothing here needs root.
#
#   make demo               a throw-away cluster on this machine, used as a user would use it
#   make quick              the tests without daemons: about a minute, while you write
#   make test               the tests to run before and after every change: a few minutes
#   make test-all           every test, with the long simulations, streams and replays: what CI runs
#   make check              style, types, docs that agree with the code
#   make sim                the controller and the nodes under faults: SEED=7 plays one seed again, ROUNDS=… more
#   make lock               requirements.txt again from pyproject.toml: what a release installs, with hashes
#   make audit              known vulnerabilities of what requirements.txt names
#   make bench              the table of measurements: QUICK=1 measures less, ARGS='--only latency' one family

VENV   := .venv
READY  := $(VENV)/.ready
BIN    := $(VENV)/bin
TOOLS  := $(VENV)/tools
CORES  := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# Most tests wait for daemons more than they compute.
JOBS   ?= $(shell echo $$(( $(CORES) < 4 ? 3 * $(CORES) : 12 )))
# What decides and describes, and the commands against a scripted controller.
QUICK_TESTS := $(addprefix tests/,cli config control model sched store wire)
SEED   ?=
QUICK  ?=
ROUNDS ?=

# A user's Python compiles gq once, not at every command.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick test test-all check sim bench lock audit clean
.DEFAULT_GOAL := test

demo: $(READY)
	@$(BIN)/gq demo

quick: $(READY)
	@$(BIN)/pytest -q -n $(JOBS) -m 'not slow and not daemons' $(QUICK_TESTS) $(ARGS)

test: $(READY)
	@$(BIN)/pytest -n $(JOBS) --dist loadgroup -m 'not slow' $(ARGS)

test-all: $(READY)
	@$(BIN)/pytest -n $(JOBS) --dist loadgroup $(ARGS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p gq -p gqd -p gqnode
	$(BIN)/pytest -q -n $(JOBS) tests/test_tidy.py tests/test_documents.py

sim: $(READY)
	@$(if $(SEED),GQ_SIM_SEED='$(SEED)') $(if $(ROUNDS),GQ_SIM_ROUNDS='$(ROUNDS)') \
	  $(BIN)/pytest -n $(JOBS) --dist loadgroup tests/simulation $(ARGS)

bench: $(READY)
	@$(BIN)/python -m tests.benchmarks $(if $(QUICK),--quick) $(ARGS)

# One file for Python 3.11 to 3.14 and every platform; the build's own requirements too, so that nothing is unpinned.
lock: $(TOOLS)/.ready
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])' \
	  | $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --upgrade \
	    --default-index https://pypi.org/simple --custom-compile-command 'make lock' \
	    --output-file requirements.txt pyproject.toml -

audit: $(TOOLS)/.ready
	@$(BIN)/python .ci/audit.py $(TOOLS)/bin/pip-audit requirements.txt

$(TOOLS)/.ready: $(READY)
	$(BIN)/python -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.5,<1' 'pip-audit>=2.7,<3'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find gq gqd gqnode tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is newer than pyproject.toml once everything that it names is installed.
$(READY): pyproject.toml
	@set -e; python=; \
	for candidate in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  if $$candidate -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo 'error: gq needs Python 3.11 or newer with its venv module; none was found in PATH' >&2; \
	  echo 'hint: install it (Debian, Ubuntu: apt-get install python3-venv), or name it: make PYTHON=/path/to/python3.12' >&2; \
	  exit 1; \
	fi; \
	echo "setting up $(VENV) with $$($$python --version) (once)" >&2; \
	$$python -m venv $(VENV); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'; \
	touch $@

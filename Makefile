# `make help` lists what can be done. Needs make, git and a Python from 3.10 to 3.14 with venv.

PYTHON ?= python3
VENV   ?= .venv
EXTRAS ?= test,dev,airflow,spark,kafka,s3,hdfs,java,openlineage,docs
PYTEST_ARGS ?=
# How many test processes: one for each processor.
JOBS   ?= $(shell getconf _NPROCESSORS_ONLN)

# How many examples each random model draws in `make soak`.
EXAMPLES ?= 300
# How many seeds are simulated on SQLite in `make soak`.
SEEDS ?= 10000
# How long `make fuzz` runs each target.
SECONDS ?= 60

# Some need less than the tests do.
ifeq ($(MAKECMDGOALS),demo)
EXTRAS := airflow,spark,java
endif
ifeq ($(MAKECMDGOALS),docs)
EXTRAS := docs
endif
ifeq ($(MAKECMDGOALS),tour)
EXTRAS := dev
endif

# Some containers set this. Then every process compiles all modules that it imports, and there are thousands here.
unexport PYTHONDONTWRITEBYTECODE

BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed-$(shell printf '%s' '$(EXTRAS)' | tr -c 'a-z' '-')

.DEFAULT_GOAL := help
.PHONY: help venv demo recording tour lint format test soak fuzz quick bench page pictures screenshots reference docs matrix constraints audit dist clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Make .venv with the package and all it needs for tests (again only after a change)

demo: $(STAMP) ## Files of many tenants, through Airflow and Spark, with the UI on loopback (DEMO="..." passes arguments on)
	@$(BIN)/airflow-mq demo $(DEMO)

recording: $(STAMP) ## Record the demo for the README, as docs/images/demo.svg
	@$(BIN)/python -m tests.store.terminal.recording build/demo.cast docs/images/demo.svg -- \
	  $(BIN)/airflow-mq demo --leave

tour: $(STAMP) ## The queue alone, command by command, in a store of its own
	@PATH="$(abspath $(BIN)):$$PATH" sh tests/tour.sh

lint: $(STAMP) ## Check style, format, types, imports, prose, budgets of size, and that the reference pages are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.voice
	$(BIN)/python -m lab.budgets
	$(BIN)/python docs/hooks/reference.py --check

format: $(STAMP) ## Rewrite the code the way `make lint` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint ## Lint, then all tests, slow ones too, except those for `make soak`
	@# The tests of a live Airflow mostly wait, so they run beside the others. The proofs fork thousands of children, and a
	@# child of a process that has imported Airflow and Spark costs 0.1 s. The last part waits for Spark and servers, too, so it
	@# has one process more. All three parts always run to their ends.
	@mkdir -p build; failed=0; set -x; \
	  $(BIN)/python -m pytest -p no:cacheprovider --durations 10 tests/live $(PYTEST_ARGS) > build/live.log 2>&1 & live=$$!; \
	  $(BIN)/python -m pytest -n $(JOBS) --durations 15 tests/proofs $(PYTEST_ARGS) || failed=1; \
	  $(BIN)/python -m pytest -n $$(($(JOBS) + 1)) --durations 15 --ignore tests/live --ignore tests/proofs tests lab $(PYTEST_ARGS) || failed=1; \
	  wait $$live || failed=1; \
	  { set +x; } 2>/dev/null; cat build/live.log; exit $$failed

soak: EXTRAS := $(EXTRAS),kubernetes
soak: $(STAMP) ## All tests in all variants, with chaos, power loss, and more random models and simulated runs, in hours (EXAMPLES=1000 SEEDS=20000 for more)
	$(install)
	MQ_SOAK=1 MQ_MODEL_EXAMPLES=$(EXAMPLES) MQ_SIMULATION_SEEDS=$(SEEDS) MQ_SIMULATION_SERVER_SEEDS=500 \
	  $(BIN)/python -m pytest -n $(JOBS) --durations 25 \
	  --ignore tests/live tests lab $(PYTEST_ARGS)
	MQ_SOAK=1 $(BIN)/python -m pytest -p no:cacheprovider --durations 20 tests/live/test_events.py tests/live/yarn tests/live/containers $(PYTEST_ARGS)
	$(BIN)/python -m tests.live.faults

fuzz: EXTRAS := $(EXTRAS),fuzz
fuzz: $(STAMP) ## Mutate inputs by coverage, SECONDS=60 for each target, or for some: FUZZ="page claim" (Linux on x86_64)
	$(install)
	$(BIN)/python -m lab.fuzz --seconds $(SECONDS) $(FUZZ)

quick: $(STAMP) ## The tests that are not slow, on SQLite, without kills, Airflow, Spark and Kafka, in two minutes
	$(BIN)/python -m pytest -m "not slow and not crash and not postgres and not airflow and not spark and not kafka" -n $(JOBS) $(PYTEST_ARGS)

bench: EXTRAS := $(EXTRAS),bench
bench: $(STAMP) ## Run the benchmarks (BENCH="..." passes arguments on)
	$(install)
	$(BIN)/python -m lab.benchmarks $(BENCH)

page: $(STAMP) ## Build the page in Airflow's UI from its sources and the API's description (needs Node 18 or later)
	@home=$$(mktemp -d); AIRFLOW_HOME=$$home $(BIN)/python -m airflow_mq.api > airflow_mq/page/openapi.json; \
	  status=$$?; rm -rf "$$home"; exit $$status
	cd airflow_mq/page && npm ci --no-audit --no-fund && npm run build

pictures: $(STAMP) ## Draw the pictures of the documentation, in docs/images
	@$(BIN)/python -m docs.pictures

screenshots: $(STAMP) ## Take the pictures of Airflow's UI in the documentation, with a live Airflow (needs Chromium)
	@AIRFLOW_MQ_PICTURES=docs/images $(BIN)/python -m pytest -q -p no:cacheprovider \
	  tests/live/screenshots.py tests/live/test_connection_form.py
	@mkdir -p build && rm -rf build/screenshots && mv docs/images/others build/screenshots

reference: $(STAMP) ## Write the reference pages from docstrings and from the declarations of commands
	@$(BIN)/python docs/hooks/reference.py

docs: $(STAMP) ## Build the documentation as a site, in build/site; any broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open build/site/index.html; for the search, python3 -m http.server -d build/site"

matrix: $(STAMP) ## The quick tests under each Python and Airflow that is supported (MATRIX="py3.12-queue ..." for some)
	@$(uv_env) $(BIN)/python -m tests.matrix $(MATRIX)

constraints: $(STAMP) ## Pin the newest versions that fit into constraints.txt
	@$(uv_env) $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --all-extras \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate pyproject.toml -o constraints.txt
	@$(uv_env) $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes -c constraints.txt \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate pyproject.toml -o requirements.txt

audit: $(STAMP) ## List what is shipped (SBOM), ask for known weaknesses, search the code; results in build/audit (needs npm, and Go for one)
	@$(uv_env) [ -x build/audit/bin/zizmor ] || { $(BIN)/uv venv --quiet build/audit; \
	  $(BIN)/uv pip install --quiet --python build/audit/bin/python bandit cyclonedx-bom pip-audit zizmor; }
	@[ -x build/audit/bin/actionlint ] || ! command -v go >/dev/null || \
	  GOBIN="$(abspath build/audit/bin)" go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
	@$(uv_env) $(BIN)/python -m tests.audit build/audit/bin build/audit

dist: $(STAMP) ## Build the archive and the wheel into dist/, twice, and check them (DIST="--tag v0.4.0 --airflow" for more)
	@$(uv_env) [ -x build/release/bin/twine ] || { $(BIN)/uv venv --quiet build/release; \
	  $(BIN)/uv pip install --quiet --python build/release/bin/python 'build[uv]' check-wheel-contents twine; }
	@$(uv_env) PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tests.release build/release/bin $(DIST)

clean: ## Remove .venv, caches and build results
	rm -rf $(VENV) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info \
	  airflow_mq/page/node_modules
	find airflow_mq tests -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# -- how the environment is made --

# The first Python that is in range and can make an environment: $(PYTHON) if it fits, else others on the PATH.
# (A name may be on the PATH and still not run, so each one is asked.)
define find_python
in_range='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 15))'; \
found=; lacking=; \
for candidate in $(PYTHON) python3 python3.12 python3.13 python3.11 python3.14 python3.10 /usr/bin/python3; do \
  "$$candidate" -c "$$in_range" 2>/dev/null || continue; \
  if "$$candidate" -c 'import ensurepip, venv' 2>/dev/null; then found=$$candidate; break; fi; \
  lacking="$$lacking $$candidate"; \
done; \
if [ -z "$$found" ]; then \
  if [ -n "$$lacking" ]; then \
    echo "Found$$lacking, but without ensurepip, so no environment can be made." >&2; \
    echo "On Debian and Ubuntu: apt install python3-venv. Or name another: make PYTHON=/path/to/python3" >&2; \
  else \
    echo "No Python from 3.10 to 3.14 found. Name one: make PYTHON=/path/to/python3" >&2; \
  fi; \
  exit 1; \
fi
endef

# uv does not read pip's configuration: pass on the index, the certificate and the folder of wheels.
pip_says = $$($(BIN)/python -m pip config list 2>/dev/null | sed -n "s/^[^=]*\.$(1)='\(.*\)'$$/\1/p" | tail -n 1)
define uv_env
set -e; \
index="$(call pip_says,index-url)"; cert="$(call pip_says,cert)"; links="$(call pip_says,find-links)"; \
if [ -n "$$index" ] && [ -z "$${UV_DEFAULT_INDEX:-}" ]; then export UV_DEFAULT_INDEX="$$index"; fi; \
if [ -n "$$cert" ] && [ -z "$${SSL_CERT_FILE:-}" ]; then export SSL_CERT_FILE="$$cert"; fi; \
if [ -d "$$links" ] && [ -z "$${UV_FIND_LINKS:-}" ]; then export UV_FIND_LINKS="$$links"; fi; \
export UV_SYSTEM_CERTS="$${UV_SYSTEM_CERTS:-true}" UV_HTTP_TIMEOUT="$${UV_HTTP_TIMEOUT:-180}"; \
export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1;
endef

# Should uv be of no use here, pip does the same, only slower. By default, uv does not compile the modules, and pip does.
define install
@$(uv_env) \
echo "Installing airflow-mq[$(EXTRAS)] into $(VENV)"; \
$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -b constraints.txt -e '.[$(EXTRAS)]' || { \
  echo "uv could not do it; trying pip" >&2; \
  $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'; \
}
endef

$(STAMP): pyproject.toml constraints.txt
	@set -e; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  $(find_python); \
	  echo "Making $(VENV) with $$("$$found" -c 'import sys; print(sys.executable, sys.version.split()[0])')"; \
	  "$$found" -m venv --clear $(VENV); \
	fi; \
	[ -x $(BIN)/uv ] || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv || true
	$(install)
	@touch $(STAMP)

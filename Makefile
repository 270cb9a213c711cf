# The developer's surface. Everything else is a file that one of these names.
PYTHON ?= python3
VENV ?= .venv
ENGINES_VENV ?= .venv-engines
BIN := $(VENV)/bin

.PHONY: help run test test-engines test-tools test-browser check format docs bench bench-export bench-overhead bench-ingest bench-simulate bench-cardinality bench-requests bench-planner bench-replan bench-pages clean
.DEFAULT_GOAL := help

help:            ## Show what there is
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.ready   ## Server, simulated Kimi-K3 fleet and dashboard on http://localhost:8501
	@$(BIN)/moescope demo

test: $(VENV)/.ready   ## Every test that needs neither an engine nor a browser
	$(BIN)/python -m pytest -n 2 --dist loadscope

test-engines: $(VENV)/.ready $(ENGINES_VENV)/.ready   ## Real vLLM and Transformers on CPU
	MOESCOPE_CORE_PYTHON=$(abspath $(BIN)/python) $(ENGINES_VENV)/bin/python -m pytest -m engine tests/engines

TOOLS := promtool prometheus prometheus-alertmanager amtool curl node npm yamllint docker-compose systemd-analyze
test-tools: $(VENV)/.ready   ## Stock clients and checkers: Prometheus, Alertmanager, Helm, docker-compose, …
	@for tool in $(TOOLS); do command -v $$tool >/dev/null || { echo "These tests need $$tool. Debian:" \
	  "apt-get install prometheus prometheus-alertmanager curl nodejs npm yamllint docker-compose systemd"; exit 1; }; done
	$(BIN)/python -m pytest -m tools tests

test-browser: $(VENV)/.ready   ## The pages in a real Chromium, with screenshots in artifacts/
	@command -v chromium >/dev/null || { \
	  echo "The browser tests need Debian's package chromium: apt-get install chromium"; exit 1; }
	$(BIN)/python -m pytest -m browser tests/browser

check: $(VENV)/.ready   ## Format, lint, types, layers, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check
	$(BIN)/python deploy/grafana/generate.py --check

format: $(VENV)/.ready   ## Format and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.ready   ## Write the generated pages and Grafana boards
	$(BIN)/python docs/generate.py
	$(BIN)/python deploy/grafana/generate.py

bench: bench-export bench-ingest bench-simulate bench-cardinality bench-requests bench-planner bench-replan bench-pages bench-overhead   ## Every benchmark; ratios, with the machine named

bench-export: $(VENV)/.ready   ## Index-encoded export against one SDK counter per expert
	@$(BIN)/python benchmarks/bench_export.py $(BENCH_ARGS)

bench-ingest: $(VENV)/.ready   ## OTLP to queryable against one row per expert
	@$(BIN)/python benchmarks/bench_ingest.py $(BENCH_ARGS)

bench-cardinality: $(VENV)/.ready   ## Series on the Prometheus page, points in OTLP, for 64 ranks of Kimi K3
	@$(BIN)/python benchmarks/cardinality_prometheus.py $(BENCH_ARGS)

bench-simulate: $(VENV)/.ready   ## A backfill of a fleet that misbehaves, every view reconciled with the truth
	@$(BIN)/python benchmarks/bench_simulate.py $(BENCH_ARGS)

bench-requests: $(VENV)/.ready $(ENGINES_VENV)/.ready   ## The stat logger beside vLLM's own, per engine step
	@$(ENGINES_VENV)/bin/python benchmarks/bench_stat_logger.py $(BENCH_ARGS)

bench-planner: $(VENV)/.ready $(ENGINES_VENV)/.ready   ## The replication planner beside vLLM's own, and beside the exact optimum
	@$(ENGINES_VENV)/bin/python benchmarks/bench_planner.py $(BENCH_ARGS)
	@$(BIN)/python benchmarks/bench_planner_exact.py $(BENCH_ARGS)

bench-replan: $(VENV)/.ready $(ENGINES_VENV)/.ready   ## A few moves beside vLLM's full re-plan, on the next window
	@$(ENGINES_VENV)/bin/python -m benchmarks.bench_replan $(BENCH_ARGS)

bench-pages: $(VENV)/.ready   ## First load, refresh and memory of every page of the dashboard
	@$(BIN)/python benchmarks/bench_pages.py $(BENCH_ARGS)

bench-overhead: $(VENV)/.ready $(ENGINES_VENV)/.ready   ## vLLM throughput with the hook on and off
	@$(ENGINES_VENV)/bin/python benchmarks/bench_overhead.py $(BENCH_ARGS)

clean:           ## Remove the environments and what tests left behind
	rm -rf $(VENV) $(ENGINES_VENV) .cache artifacts build dist *.egg-info

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "moescope needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 …"; exit 1; }
	@echo "Setting up $(VENV) (once, about a minute) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(ENGINES_VENV)/.ready: pyproject.toml tests/engines/install_engines.py
	@echo "Setting up $(ENGINES_VENV) (once, some minutes and 4 GB) …"
	@$(PYTHON) -m venv $(ENGINES_VENV)
	@$(PYTHON) tests/engines/install_engines.py $(ENGINES_VENV)/bin/python
	@touch $@

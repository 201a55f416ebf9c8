# Python 3.11, make and git are all a fresh machine needs; the tests also open the report in Chromium.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= runs/ou

.PHONY: install browser demo reproduce reproduce-quick bench bench-quick peers docs test test-slow lint format clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Langenode needs Python 3.11 or newer; this is %d.%d. Try: make PYTHON=python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: install
	$(BIN)/langenode run ou --out $(OUT)

# Every number and figure of the paper: hours, resumable; with small settings minutes.
reproduce: install
	$(BIN)/langenode reproduce all

reproduce-quick: install
	$(BIN)/langenode reproduce all --quick

# The report is tested in a real browser: Debian's package, installed where we may, asked for where we may not.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || \
	{ echo "make test opens reports in Chromium; there is none; install it, e.g. sudo apt-get install chromium" >&2; exit 1; }

# Peers of the benchmark in a folder of their own, without what they depend on: nothing may replace what is installed.
PEERS := build/peers
BENCH := PYTHONPATH=src:benchmarks:$(PEERS) $(BIN)/python benchmarks/bench.py

peers: $(PEERS)/.installed

$(PEERS)/.installed: benchmarks/requirements.txt | install
	rm -rf $(PEERS)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --target $(PEERS) -r benchmarks/requirements.txt
	touch $@

# All measurements of speed: at most 30 minutes on 2 cores, or 5. Absent peers are recorded as absent.
bench: install
	-$(MAKE) peers
	$(BENCH)

bench-quick: install
	-$(MAKE) peers
	$(BENCH) --quick

test: install browser
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: install browser
	$(BIN)/python -m pytest -m slow

# The reference pages and the schematic that are made from the code.
docs: install
	$(BIN)/python -m langenode.fitting.reference_pages docs/reference
	$(BIN)/python docs/images/framework.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist src/*.egg-info

# The two commands of README.md are `make demo` and `make test`; everything happens in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUTPUT := demo-output

EXAMPLES := gss gss_party lecture_ratings party_thermometers
OVER_TIME := example-gss_by_year example-gss_by_year_stream

# pip compiles nothing here, but it does read these; a change of them means a new installation.
INSTALL_INPUTS := pyproject.toml
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo engines test test-here test-engines tested-versions lint format docs examples check bench clean \
	$(EXAMPLES:%=example-%) $(OVER_TIME)

help:  ## this list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(VENV)/.examples  ## estimates from real people's answers that the server never saw
	$(BIN)/python -m examples.demo $(OUTPUT)

engines: $(VENV)/.test  ## fetch Prism, Flink and Spark (Java, Maven, Go), and try each
	$(BIN)/ldp-beam doctor

test: test-here test-engines  ## all tests

# Files stay whole, for their fixtures, and in their order: those with few and long tests stand first.
test-here: $(VENV)/.test
	$(NICE) $(BIN)/python -m pytest -n logical --dist loadfile --no-loadscope-reorder -m "not engine" $(PYTEST_ARGS) $(OR_NONE)

test-engines: $(VENV)/.test
	$(BIN)/python -m pytest -m engine $(or $(PYTEST_ARGS),tests/engines) $(OR_NONE)

# Of tests that were chosen there may be none of one kind: pytest's exit code 5.
OR_NONE = $(if $(PYTEST_ARGS),|| test $$? = 5)

# Tests on engines wait for engines most of the time, and the others compute, and let them go first: together they are
# done sooner. With -j 3.
check: NICE := nice
check: test lint docs demo examples  ## everything that a change has to pass

tested-versions: $(VENV)/.test  ## whether docs/engines.md names the engines that `make test` ran with
	$(BIN)/python -m benchmarks.tested_versions --check

lint: $(VENV)/.lint  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint engines/container/Dockerfile

format: $(VENV)/.lint  ## put the code into the one format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.docs  ## the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -W ignore -m mkdocs build --strict --quiet

examples: $(EXAMPLES:%=example-%) $(OVER_TIME)  ## every example: prepare, collect, compare with the truth

$(EXAMPLES:%=example-%): example-%: $(VENV)/.examples
	$(BIN)/python -m examples.$*.prepare $(OUTPUT)/$*
	$(BIN)/ldp-beam collect --collection examples/$*/collection.toml --input $(OUTPUT)/$*/records.parquet \
		--output $(OUTPUT)/$*/result --format csv --overwrite
	$(BIN)/ldp-beam evaluate --estimates $(OUTPUT)/$*/result --truth $(OUTPUT)/$*/truth.csv

example-gss_by_year: $(VENV)/.examples
	$(BIN)/python -m examples.gss_by_year.over_time $(OUTPUT)/gss_by_year

example-gss_by_year_stream: $(VENV)/.examples
	$(BIN)/python -m examples.gss_by_year.replay $(OUTPUT)/gss_by_year_stream

bench: $(VENV)/.test  ## every benchmark: results in benchmarks/results, plots in docs/images/benchmarks
	$(BIN)/python -m benchmarks

bench-%: $(VENV)/.test  ## one benchmark, for example make bench-kernel
	$(BIN)/python -m benchmarks $*

clean:  ## take away what the other commands made
	rm -rf $(VENV) $(OUTPUT)

# -- the virtual environment -----------------------------------------------------------------------------
# A stamp says which extras are installed; each is older than its inputs only once. Who has installed the extras of
# others among its own says so for them, and pip runs once.

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.examples: EXTRAS := examples
$(VENV)/.test: EXTRAS := test,examples,docs
$(VENV)/.docs: EXTRAS := docs
$(VENV)/.lint: EXTRAS := lint,test,examples,docs
$(VENV)/.test: INCLUDED := $(VENV)/.examples $(VENV)/.docs
$(VENV)/.lint: INCLUDED := $(VENV)/.examples $(VENV)/.docs $(VENV)/.test
$(VENV)/.examples $(VENV)/.test $(VENV)/.lint $(VENV)/.docs: $(INSTALL_INPUTS) $(VENV)/.created
	$(PIP_INSTALL) --editable '.[$(EXTRAS)]'
	touch $@ $(INCLUDED)

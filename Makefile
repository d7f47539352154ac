# Everything runs in the project's own virtual environment. `make run` is all that is needed.

VENV := .venv
PYTHON := $(VENV)/bin/python
SYSTEM_PYTHON := $(shell command -v python3.11 || command -v python3)
TORCH := $(shell sed -n 's/^torch==//p' requirements.txt)
# Asked only where pip's own configuration offers no CPU build, and for torch alone.
TORCH_INDEX_URL := https://download.pytorch.org/whl/cpu

.PHONY: help run install install-dev test check fmt bench compare screenshots clean

help:
	@sed -n 's/^## //p' Makefile

## make run          install what is missing, then serve on PORT (8080) until Ctrl-C
run: install
	@exec $(PYTHON) manage.py serve

## make install      the virtual environment with everything that serving needs
install: $(VENV)/installed

## make install-dev  the same, and what tests and checks need
install-dev: $(VENV)/installed-dev

## make test         every test, with coverage; ARGS="-k name" goes to pytest
test: install-dev
	$(PYTHON) -m pytest --cov --cov-report=term $(ARGS)

## make check        lint, format, types, import contract, migrations, Django's checks
check: install-dev
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PYTHON) manage.py makemigrations --check --dry-run
	$(PYTHON) manage.py check

## make fmt          format the code and mend what the linter can mend
fmt: install-dev
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

## make bench        Tandem beside vLLM's own server; ARGS goes to the benchmark
bench: install-dev
	$(PYTHON) -m tests.benchmarks.run $(ARGS)

## make compare      the same requests to Tandem and vLLM's own server, into docs/api/compatibility.md
compare: install-dev
	$(PYTHON) -m tests.comparison.run

## make screenshots  drives the admin in Chromium and puts pictures of it into docs/images
screenshots: install-dev
	$(PYTHON) -m pytest tests/browser
	$(PYTHON) -m tests.browser.pictures

## make clean        remove the virtual environment and every cache, not the data in var/
clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed: requirements.txt
	@$(SYSTEM_PYTHON) -c 'import sys; sys.version_info[:2] == (3, 11) or sys.exit("Tandem needs Python 3.11")'
	test -x $(PYTHON) || $(SYSTEM_PYTHON) -m venv $(VENV)
# torch first and by itself: left to vLLM's requirements, pip would take the CUDA build.
	$(PYTHON) -m pip install --no-deps --no-index torch==$(TORCH)+cpu || \
	    $(PYTHON) -m pip install --no-deps --index-url $(TORCH_INDEX_URL) torch==$(TORCH)
	$(PYTHON) -m pip install -r requirements.txt
	$(remove-misfits)
	touch $@

$(VENV)/installed-dev: $(VENV)/installed requirements-dev.txt
	$(PYTHON) -m pip install -r requirements-dev.txt
	$(remove-misfits)
	touch $@

# Companions of torch that pip took from builds for another torch: text needs none of them, and
# one that cannot be imported breaks transformers.
define remove-misfits
@for package in torchvision torchaudio torchcodec; do \
    $(PYTHON) -c "import $$package" 2>/dev/null || \
        $(PYTHON) -m pip uninstall --quiet --yes $$package 2>/dev/null; \
done
endef

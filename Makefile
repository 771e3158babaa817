# `make demo` and `make test` are all a newcomer needs; both set up what they use.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BUILD ?= build/cpp
SANITIZE ?= thread
RUN ?= runs/demo
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: demo test check lint format cpp-test sanitize soak bench clean

demo: $(VENV)/.demo
	hvdtune run -np 2 --trials 40 --time-budget 7m30s -o $(RUN) studies/quickstart/train_torch.py

test: $(VENV)/.test cpp-test
	python -m pytest

check: lint
	python -m pytest -m "not slow"

lint: $(VENV)/.test
	ruff format --check .
	ruff check .
	mypy
	lint-imports
	find csrc tests/cpp tests/timeline -name '*.h' -o -name '*.cc' | xargs clang-format --dry-run -Werror

format: $(VENV)/.test
	ruff format .
	ruff check --fix .
	find csrc tests/cpp tests/timeline -name '*.h' -o -name '*.cc' | xargs clang-format -i

cpp-test: $(VENV)/.test
	cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DHVDTUNE_TESTS=ON -DHVDTUNE_PYTHON=OFF -DHVDTUNE_WERROR=ON > /dev/null
	cmake --build $(BUILD)
	ctest --test-dir $(BUILD) --output-on-failure --timeout 300

# make sanitize SANITIZE=address for the other one
sanitize: $(VENV)/.test
	cmake -S . -B build/$(SANITIZE) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DHVDTUNE_TESTS=ON -DHVDTUNE_PYTHON=OFF -DHVDTUNE_SANITIZE=$(SANITIZE) > /dev/null
	cmake --build build/$(SANITIZE)
	setarch -R ctest --test-dir build/$(SANITIZE) --output-on-failure --timeout 600

# 100 kills at random instants instead of the test suite's dozen
soak: $(VENV)/.test
	HVDTUNE_TEST_KILLS=100 python -m pytest tests/parallel/test_failure.py -k sigkill

bench: $(VENV)/.bench
	python studies/bench/collectives.py
	hvdtune run -np 2 studies/bench/timeline_cost.py

clean:
	rm -rf build $(VENV) hvdtune/core/_native*.so

# torch comes first and pinned: as a dependency it would bring several GB of CUDA packages along.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	pip install -q --disable-pip-version-check -c constraints.txt torch setuptools wheel
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml setup.py CMakeLists.txt $(shell find csrc -type f)
	pip install -q --disable-pip-version-check -c constraints.txt -e ".[dashboard,quickstart]"
	touch $@

$(VENV)/.test: $(VENV)/.demo
	pip install -q --disable-pip-version-check -c constraints.txt -e ".[dashboard,quickstart,test]"
	touch $@

$(VENV)/.bench: $(VENV)/.test
	pip install -q --disable-pip-version-check -c constraints.txt -e ".[dashboard,quickstart,test,bench]"
	touch $@

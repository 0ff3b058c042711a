# Two commands matter: `make demo` and `make test`. Both need only Python >= 3.10 with venv, make
# and a C++ compiler; everything else comes through pip into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
MODELS ?= models
OUT ?= out
PICTURES ?=
# two workers; tests of one network stay on one of them and share its engines
PYTEST_ARGS ?= -n 2 --dist loadgroup

SOURCES := pyproject.toml README.md LICENSE $(shell find src native -type f -not -path '*/__pycache__/*' -not -path 'src/braze/lib/*')

.PHONY: demo test lint native native-test sanitize pytest models clean help

help:
	@echo "make demo        fetch three OCR networks, build engines, read a page (PICTURES=... for yours)"
	@echo "make test        lint, type check, native tests, and all Python tests"
	@echo "make native      build the native runtime into src/braze/lib"
	@echo "make fuzz        random graphs until stopped (FUZZ_ARGS='--graphs 20000 --jobs 16 --report r.txt')"
	@echo "make sanitize    the native tests under ASan + UBSan and under TSan"
	@echo "make clean       remove .venv, build, out (models stay)"

demo: $(VENV)/demo.stamp
	$(BIN)/python scripts/fetch_models.py --set demo $(MODELS)
	PYTHONPATH=examples $(BIN)/python -m ocr --models $(MODELS) --out $(OUT) $(PICTURES)

test: lint native-test pytest

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check src tests examples scripts benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

# A model that cannot be fetched skips its tests, unless BRAZE_REQUIRE_MODELS is set (as in CI).
models: $(VENV)/dev.stamp
	-$(BIN)/python scripts/fetch_models.py $(MODELS)

pytest: $(VENV)/dev.stamp models
	BRAZE_MODELS=$(abspath $(MODELS)) $(BIN)/python -m pytest $(PYTEST_ARGS)

# The runtime of a source tree, into src/braze/lib: what PYTHONPATH=src then runs.
native: $(VENV)/dev.stamp
	$(BIN)/cmake -S native -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DBRAZE_WERROR=ON
	$(BIN)/cmake --build build/native
	$(BIN)/cmake --install build/native --prefix src --component runtime

fuzz: $(VENV)/dev.stamp
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

native-test: $(VENV)/tools.stamp
	$(call native_tests,plain,)

sanitize: $(VENV)/tools.stamp
	$(call native_tests,asan,address$(comma)undefined)
	$(call native_tests,tsan,thread)

comma := ,
# $(1): name of the build folder, $(2): sanitizers
define native_tests
	$(BIN)/cmake -S native -B build/native-$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		-DCMAKE_BUILD_TYPE=Release -DBRAZE_BUILD_TESTS=ON -DBRAZE_WERROR=ON -DBRAZE_SANITIZE=$(2)
	$(BIN)/cmake --build build/native-$(1)
	$(BIN)/ctest --test-dir build/native-$(1) --output-on-failure --no-tests=error --parallel 2
endef

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade "pip>=23"

# onnxruntime is only there to compare with; without it the demo shows braze alone
$(VENV)/demo.stamp: $(BIN)/python $(SOURCES)
	$(PIP) install ".[demo]"
	-$(PIP) install ".[peers]"
	touch $@

# what native tests are built with; they do not wait for the rest
$(VENV)/tools.stamp: $(BIN)/python
	$(PIP) install "cmake>=3.20" ninja
	touch $@

$(VENV)/dev.stamp: $(BIN)/python $(SOURCES) | $(VENV)/tools.stamp
	$(PIP) install ".[dev,demo,peers,cuda]"
	touch $@

clean:
	rm -rf $(VENV) build out

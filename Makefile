# Every target makes the virtual environment it needs; a fresh checkout needs Python 3.11 or newer and nothing else.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# What runs with the compiled core, too: bytes, connections, machines, shells and whole runs.
CORE_TESTS := tests/bkclient/core tests/bkclient/wire tests/bkclient/transport tests/bkclient/_client tests/bkclient/protocol \
	tests/bkclient/test_call_budget.py tests/scenarios/test_mutants.py tests/end_to_end
INSTALLED := $(VENV)/.installed

# ZooKeeper and Spark need Java 17 or newer; where there is none, a package brings one.
JAVA_REQUIREMENTS := $(shell sh .ci/has-java || echo -r .ci/requirements-java.txt)

.PHONY: help demo test deep docs pins check lint types newcomer screenshots environments environments-brief core core-clean core-test core-sanitized conformance format determinism sweep plans log-sweep exhaustive stateful properties cancelled hostile cluster coverage mutation interop interop-storages interop-plans interop-defects interop-java-tests bench bench-full bench-page bench-peers soak bookie-soak crashes processes log-kills storage-defects clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 20

demo: $(INSTALLED)  ## show the product at work, on real ZooKeeper, TCP bookies and Spark (add INPUT=FILE to choose what is written)
	$(BIN)/python -m examples.demo $(if $(INPUT),--input $(INPUT))

test: $(INSTALLED)  ## run the tests
	$(BIN)/pytest -n auto --dist loadfile

deep: $(INSTALLED)  ## the tests that take seconds each: searches for planted defects, pages followed word by word (a few minutes)
	$(BIN)/pytest -n auto --dist loadfile -m "deep and not sweep"

check: lint types  ## lint, types, import contracts

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(INSTALLED)
	$(BIN)/mypy

docs: $(INSTALLED)  ## build the documentation site into build/site, warnings as errors; needs no network
	$(BIN)/python -m docs.website.build

screenshots: $(INSTALLED)  ## look at the site, the cluster's page and reports in a Chromium, by keyboard too; pictures in build/screenshots (5 minutes)
	$(BIN)/python -m tests.tools.screenshots $(if $(ONLY),--only $(ONLY))

newcomer: $(INSTALLED)  ## README, then the page about tests to the replay of a failure, word by word, in empty environments, with times (2 minutes)
	$(BIN)/python -m tests.tools.newcomer

environments: $(INSTALLED)  ## the tests on other Pythons, with the lowest and the highest versions allowed (ONLY="3.13-highest")
	$(BIN)/python -m tests.tools.environments --pytest "-n auto" $(ONLY)

environments-brief: $(INSTALLED)  ## the part of them that depends on the environment most, where the machine has the Pythons
	$(BIN)/python -m tests.tools.environments --brief --at-once 4 $(ONLY)

core: $(INSTALLED)  ## build the compiled core beside its sources, where this checkout uses it (needs a C compiler)
	$(BIN)/python -m bkclient._cython.build

core-clean: $(INSTALLED)  ## remove it
	$(BIN)/python -m bkclient._cython.build --remove

core-test: $(INSTALLED)  ## build it if there is a C compiler, and run the tests it matters to with it; without one say so and go on
	@if command -v $(CC) >/dev/null && test -f "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"; then \
	  $(MAKE) core && BKCLIENT_CORE=cython $(BIN)/pytest -n auto --dist loadfile $(CORE_TESTS); status=$$?; \
	  $(MAKE) core-clean; exit $$status; \
	else echo "no C compiler, or no headers of Python: the compiled core is not tested"; fi

core-sanitized: $(INSTALLED)  ## the same with gcc's address sanitizer, which sees every byte that is read where none is
	$(BIN)/python -m bkclient._cython.build --sanitized
	LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc BKCLIENT_CORE=cython \
	  $(BIN)/python -m pytest -s tests/bkclient/core tests/bkclient/wire tests/bkclient/transport/test_bulk.py \
	    tests/bkclient/transport/test_tally.py tests/bkclient/transport/test_striped_tally.py tests/bkclient/transport/test_send_many.py; \
	  status=$$?; $(BIN)/python -m bkclient._cython.build --remove; exit $$status

conformance: $(INSTALLED)  ## how many rules and behaviours of the protocol tests cover, and which not yet
	@$(BIN)/python -m tests.tools.conformance

format: $(INSTALLED)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Environments that 'make environments' has made; runs have to come out the same with each of their Pythons.
PYTHONS = $(wildcard build/environments/*-highest/bin/python)

determinism: $(INSTALLED)  ## scenarios, plans and swarms, each run twice in one process, in others that hash differently, and with other Pythons; nothing may use the real world
	$(BIN)/bk-chaos determinism --seeds 100 --first-seed 0
	$(BIN)/bk-chaos determinism --seeds 30 --first-seed 0 --transport bytes
	$(BIN)/bk-chaos determinism --seeds 1000 --in-turn --hash-seeds 3 $(foreach python,$(PYTHONS),--python $(python))
	$(BIN)/bk-chaos determinism --seeds 300 --in-turn --audit
	$(BIN)/bk-chaos determinism --seeds 40 swarm swarm-live --audit --transport bytes

sweep: $(INSTALLED)  ## today's seeds of every scenario, of swarms, and of everything until all marks are met; every mutant until it is found; walks of the machines
	$(BIN)/bk-chaos sweep --seeds 500
	$(BIN)/bk-chaos sweep --seeds 200 --transport bytes
	$(BIN)/bk-chaos sweep --seeds 1000 swarm swarm-live
	$(BIN)/bk-chaos sweep --seeds 2000 --marks
	$(BIN)/bk-chaos mutants
	$(BIN)/bk-chaos explore --walks 2000

plans: $(INSTALLED)  ## the long tests of scenarios: swarms and the library with many seeds, over bytes too, schedules, all marks, complete searches
	$(BIN)/pytest -q -n auto --dist worksteal -m sweep tests/scenarios --ignore tests/scenarios/processes

LOG_PLANS = $(basename $(notdir $(wildcard scenarios/plans/log-*.scn)))

log-sweep: $(INSTALLED)  ## 20,000 seeds over objects and 2,000 over bytes, each in one plan of logs in turn (SEEDS=500 BYTES=50 for fewer)
	@$(BIN)/bk-chaos sweep $(LOG_PLANS) --in-turn --first-seed 0 --seeds $(or $(SEEDS),20000)
	@$(BIN)/bk-chaos sweep $(LOG_PLANS) --in-turn --first-seed 0 --seeds $(or $(BYTES),2000) --transport bytes

exhaustive: $(INSTALLED)  ## every order of everything that may happen in small clusters: twelve configurations, some 17 million states (about 5 minutes, 2.5 GB)
	$(BIN)/bk-chaos exhaustive one-copy one-copy-change both-copies both-copies-2 both-copies-change both-copies-close both-copies-rivals \
		either-copy striped two-of-three two-of-three-crash both-copies-change-2

stateful: $(INSTALLED)  ## arbitrary schedules against the reference model, at length: machines, and the client in virtual time
	$(BIN)/pytest -q -m sweep tests/bkclient/protocol/stateful tests/simbookie/world/stateful

properties: $(INSTALLED)  ## property tests with 25 times their examples, other ones each time (MORE=100 for more; half an hour of a processor)
	$(BIN)/pytest -q -n auto --dist loadfile -p tests.tools.more_examples --timeout 0 \
	  -m "hypothesis and not deep and not sweep and not interop" tests

cancelled: $(INSTALLED)  ## operations of a program given up at every step of their process, four ways, with faults and without (about 15 minutes)
	$(BIN)/pytest -q -n auto -m sweep tests/scenarios/testing/test_cancelled_in_world.py

hostile: $(INSTALLED)  ## five faults at every byte between client and bookie in virtual time, and attacks on a bookie beside an honest client (about 5 minutes)
	$(BIN)/pytest -q -m sweep tests/end_to_end/hostile

cluster: $(INSTALLED)  ## bk-verify on a standalone Spark cluster of a master and two workers, one of which is killed, and the guide for data engineers (about 10 minutes)
	$(BIN)/pytest -q -m sweep tests/spark_analysis tests/test_tutorial.py

processes: $(INSTALLED)  ## plans of the library with processes over TCP, in real time: clients and bookies that are killed and stopped (about 5 minutes)
	$(BIN)/pytest -q -m sweep tests/scenarios/processes

crashes: $(INSTALLED)  ## kill a bookie 20,000 times over each store, 5,000 with other entry logs or two folders, and check what it promised, then show BookKeeper's defects (RUNS=2000 for fewer)
	$(BIN)/bk-sim crashes --runs $(or $(RUNS),20000) --storage interleaved
	$(BIN)/bk-sim crashes --runs $(or $(RUNS),20000) --storage sorted
	$(BIN)/bk-sim crashes --runs $(or $(RUNS),20000) --storage db
	for logs in interleaved-per-ledger sorted-per-ledger db-per-ledger db-direct interleaved-folders db-folders; do \
		$(BIN)/bk-sim crashes --runs $(or $(RUNS),5000) --storage $$logs || exit 1; done
	$(BIN)/bk-sim crashes --quirks faithful

storage-defects: $(INSTALLED)  ## plant defects in the storage of a bookie and see crash runs notice each (ONLY='part of a name', STORE=db for those of its stores)
	$(BIN)/python -m tests.tools.storage_defects $(if $(ONLY),"$(ONLY)",--page) $(if $(STORE),--store "$(STORE)")

coverage: $(INSTALLED)  ## prove that the tests of the protocol machines take every branch of them
	$(BIN)/coverage run -m pytest -q tests/bkclient/protocol --ignore=tests/bkclient/protocol/stateful
	$(BIN)/coverage report

mutation: $(INSTALLED)  ## change the client in every small way and see which changes no test notices (PART="wire transport"; an hour for all)
	@for part in $(or $(PART),protocol recovery ledgers reading writing wire transport); do \
	  $(BIN)/python -m tests.tools.mutation $$part || exit 1; \
	done

# The versions of Apache BookKeeper to meet; the load tool is not published for all of them.
BOOKKEEPER_VERSIONS ?= 4.17.3 4.18.0

interop: $(INSTALLED)  ## meet Apache BookKeeper's own bookies, Java client and tools (needs Maven and Maven Central)
	@command -v mvn >/dev/null || { echo "make interop needs Maven (mvn), to fetch Apache BookKeeper from Maven Central" >&2; exit 1; }
	@for version in $(BOOKKEEPER_VERSIONS); do \
	  profile=$$(case $$version in 4.17.3) echo -Pload-tool;; esac); \
	  mvn -B -q -f tests/interop/pom.xml -Dbookkeeper.version=$$version $$profile compile \
	  || { echo "Maven could not build the peers for Apache BookKeeper $$version: is Maven Central reachable?" >&2; exit 1; }; \
	done
	mvn -B -q -f tests/interop/pulsar/pom.xml compile || { echo "Maven could not build the peers for Apache Pulsar: is Maven Central reachable?" >&2; exit 1; }
	export BOOKKEEPER_VERSIONS="$(BOOKKEEPER_VERSIONS)"; $(BIN)/pytest -m interop tests/interop \
	  || INTEROP_SECOND_ATTEMPT=1 $(BIN)/pytest -m interop --last-failed --last-failed-no-failures none tests/interop
	$(BIN)/python -m tests.tools.interop_page

interop-storages: $(INSTALLED)  ## folders of bookies that go from ours to Apache BookKeeper's and back, every storage (half an hour on a busy machine; a part of 'make interop')
	@test -d build/interop/4.18.0/classes || { echo "make interop-storages needs the peers that 'make interop' builds" >&2; exit 1; }
	$(BIN)/pytest -q -m interop tests/interop/test_disks_both_ways.py
	$(BIN)/python -m tests.tools.interop_page storages

interop-plans: $(INSTALLED)  ## plans of the library with processes on Apache BookKeeper's own bookies (uses what 'make interop' has built)
	@test -d build/interop/4.18.0/classes || { echo "make interop-plans needs the peers that 'make interop' builds" >&2; exit 1; }
	BOOKKEEPER_VERSIONS="$(or $(VERSION),4.18.0)" $(BIN)/pytest -q -m sweep tests/interop/test_plans.py

interop-defects: $(INSTALLED)  ## plant defects and see the tests of 'make interop' notice (about 15 minutes; ONLY='part of a name')
	@test -d build/interop/4.18.0/classes || { echo "make interop-defects needs the peers that 'make interop' builds" >&2; exit 1; }
	$(BIN)/python -m tests.tools.interop_defects $(if $(ONLY),"$(ONLY)")

JAVA_TESTS_VERSION ?= 4.18.0

interop-java-tests: $(INSTALLED)  ## Apache BookKeeper's own client tests on our bookies (an hour; needs Maven and Maven Central; CLASS="Fencing Recovery")
	@command -v mvn >/dev/null || { echo "make interop-java-tests needs Maven (mvn), to fetch Apache BookKeeper from Maven Central" >&2; exit 1; }
	@mvn -B -q -f tests/interop/java_tests/pom.xml -Dbookkeeper.version=$(JAVA_TESTS_VERSION) process-classes \
	  || { echo "Maven could not build the tests of Apache BookKeeper $(JAVA_TESTS_VERSION): is Maven Central reachable?" >&2; exit 1; }
	$(BIN)/python -m tests.interop.java_tests --version $(JAVA_TESTS_VERSION) $(CLASS)

# Apache BookKeeper's client and bookies, where Maven is there; without them benchmarks say so and go on.
bench-peers:
	@if test ! -d build/interop/4.18.0/classes && command -v mvn >/dev/null; then \
	  mvn -B -q -f tests/interop/pom.xml -Dbookkeeper.version=4.18.0 compile || echo "Maven could not fetch Apache BookKeeper" >&2; \
	fi

bench: $(INSTALLED) bench-peers  ## what the client costs beside the Java client and bare ceilings (a quarter of an hour; SUBJECT="append read")
	$(BIN)/python -m benchmarks.suite $(foreach each,$(SUBJECT),--subject $(each))

bench-full: $(INSTALLED) bench-peers  ## the same with more rounds and more in each, and 100,000 open ledgers
	$(BIN)/python -m benchmarks.suite --full $(foreach each,$(SUBJECT),--subject $(each))

bench-page: $(INSTALLED) bench-peers  ## the same, and write docs/inside/performance.md with its figures; after 'make core', on a machine without other work
	$(BIN)/python -m benchmarks.suite --full --output build/bench/results.json
	$(BIN)/python -m benchmarks.page build/bench/results.json

clean:  ## remove the virtual environment and everything generated
	rm -rf $(VENV) build dist histories .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache mutants *.egg-info

soak: $(INSTALLED)  ## whole ledger lives under disturbances for an hour (SECONDS=600 for ten minutes); ends with 1 if anything grows or breaks
	$(BIN)/python -m benchmarks.soak --seconds $(or $(SECONDS),3600)

bookie-soak: $(INSTALLED)  ## a bookie on disk under a steady load for an hour, with garbage collected; ends with 1 if its memory grows (SECONDS=600)
	$(BIN)/python -m benchmarks.bookie_soak --seconds $(or $(SECONDS),3600) --store $(or $(STORE),db)

log-kills: $(INSTALLED)  ## owners of a log and bookies killed 200 times by SIGKILL over TCP, messages checked from outside (about 15 minutes; KILLS=20 for fewer)
	$(BIN)/python -m benchmarks.log_kills --kills $(or $(KILLS),200)

pins: $(INSTALLED)  ## pin the versions of all dependencies and their hashes anew (UPGRADE=1: the newest that pyproject.toml allows)
	$(BIN)/python -m tests.tools.pins $(if $(UPGRADE),--upgrade)

$(INSTALLED): pyproject.toml .ci/requirements.txt .ci/requirements-java.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
	  -r .ci/requirements.txt $(JAVA_REQUIREMENTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

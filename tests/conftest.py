"""Fixtures that several packages share."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none
from xdist.remote import Producer

from simbookie.java import JavaNotFoundError, JavaRuntime, find_java
from simbookie.zookeeper import ZooKeeperServer
from simbookie.zookeeper.choosing import USUAL_PORT
from tests.ports import held
from tests.scheduling import SPARK, LongestFirst
from tests.zookeepers import AnyZooKeeper, EmbeddedInThread

_ROOTS = itertools.count(1)

#: Each collects all tests, which takes some 15 s of CPU.
WORKERS_MAX = 8
#: Half the processor's time of a process that is not nice.
YIELDING_NICENESS = 3

# The suite starts hundreds of processes. Where bytecode is not kept, as container images often have it, each of them
# compiles the project anew, and so does every run with the tests themselves.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Collected tests are a million objects that live to the end. The garbage collector would look at them again and again: that
# is a quarter of the suite's CPU time. So it waits until all are collected, and leaves them alone from then on.
gc.disable()

#: Tests of processes and whole lives of clients.
_STORIES: Final = tuple(Path(__file__).parent / name for name in ("bkclient/cli", "end_to_end", "simbookie"))

# How long an example takes says how busy the machine is: Hypothesis would call a test flaky that is late once, and one unhealthy
# whose examples are drawn slowly.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@settings(max_examples=1, database=None)
@given(none())
def use_hypothesis(_nothing: None) -> None:
    """Hypothesis 6.120 registers its source of chance at its first use, and cannot tell that it is kept once that is frozen."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """A story that runs on the embedded ZooKeeper runs on ZooKeeper itself among the deep tests: a JVM each takes seconds."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if "java" in parameters and any(item.path.is_relative_to(stories) for stories in _STORIES):
        item.add_marker(pytest.mark.deep)


def pytest_collection_finish() -> None:
    use_hypothesis()
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """What ``-n auto`` means: two processes more than there are processors, because many tests wait for processes and timers."""
    return min(len(os.sched_getaffinity(0)) + 2 if hasattr(os, "sched_getaffinity") else 2, WORKERS_MAX)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongestFirst | None:
    return LongestFirst(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of Spark are one long line in one process of ``-n auto``, so the others let it pass."""
    is_other = "PYTEST_XDIST_WORKER" in os.environ and not item.nodeid.startswith(SPARK)
    if is_other and hasattr(os, "nice") and os.nice(0) == 0:
        os.nice(YIELDING_NICENESS)


@pytest.fixture(scope="session")
def java() -> JavaRuntime:
    """A Java runtime; the test is skipped where there is none."""
    try:
        return find_java()
    except JavaNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def java_zookeeper(java: JavaRuntime) -> Iterator[ZooKeeperServer]:
    """ZooKeeper itself for all tests of this process, which must not stop it. Mark its users ``zookeeper``."""
    with ZooKeeperServer(java=java, tick_time_ms=200) as server:
        yield server


@pytest.fixture(scope="session")
def embedded_zookeeper() -> Iterator[EmbeddedInThread]:
    """An embedded ZooKeeper for all tests of this process, which must not stop it."""
    with EmbeddedInThread() as server:
        yield server


@pytest.fixture(params=["embedded", pytest.param("java", marks=pytest.mark.zookeeper)], scope="session")
def zookeeper_server(request: pytest.FixtureRequest) -> AnyZooKeeper:
    """A ZooKeeper server for all tests of this process, which must not stop it: the embedded one, and ZooKeeper itself."""
    server: AnyZooKeeper = request.getfixturevalue(f"{request.param}_zookeeper")
    return server


@pytest.fixture(params=["embedded", pytest.param("java", marks=pytest.mark.zookeeper)])
def own_zookeeper(request: pytest.FixtureRequest) -> Iterator[AnyZooKeeper]:
    """A ZooKeeper server of the test's own, which it may stop: the embedded one, and ZooKeeper itself."""
    if request.param == "embedded":
        with EmbeddedInThread() as embedded:
            yield embedded
    else:
        with ZooKeeperServer(java=request.getfixturevalue("java")) as server:
            yield server


@pytest.fixture
def zookeeper_root() -> str:
    """A path that no other test of this process uses."""
    return f"/test-{next(_ROOTS)}/ledgers"


_USUAL_PORT = pytest.StashKey[socket.socket | None]()


def pytest_configure(config: pytest.Config) -> None:
    # Tests run side by side, and so may other programs: none may count on the port that ZooKeeper has by habit.
    if not hasattr(config, "workerinput"):
        config.stash[_USUAL_PORT] = held(USUAL_PORT)
    # A shell starts what runs in its background with Ctrl-C ignored, children inherit that, and some are sent it on purpose.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (listener := config.stash.get(_USUAL_PORT, None)) is not None:
        listener.close()

"""Fixtures that several packages share."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator

import pytest

from simbookie.java import JavaNotFoundError, JavaRuntime, find_java
from simbookie.zookeeper import ZooKeeperServer

_ROOTS = itertools.count(1)


@pytest.fixture(scope="session")
def java() -> JavaRuntime:
    """A Java runtime; the test is skipped where there is none."""
    try:
        return find_java()
    except JavaNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def zookeeper_server(java: JavaRuntime) -> Iterator[ZooKeeperServer]:
    """A real ZooKeeper server for all tests of this process, which must not stop it. Mark its users ``zookeeper``."""
    with ZooKeeperServer(java=java, tick_time_ms=200) as server:
        yield server


@pytest.fixture
def zookeeper_root() -> str:
    """A path that no other test of this process uses."""
    return f"/test-{next(_ROOTS)}/ledgers"


def pytest_configure() -> None:
    # A shell starts what runs in its background with Ctrl-C ignored, children inherit that, and some are sent it on purpose.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

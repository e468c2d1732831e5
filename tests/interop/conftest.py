"""Real peers for the tests in this folder: one ZooKeeper, one cluster of real bookies and one Java client per version.

What cannot be had here fails, it is not skipped: run by ``make interop``, which builds the peers first.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

import bkclient
from bkclient import BookKeeper, ClientConfig
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build, builds
from tests.interop.java_peer import JavaPeer
from tests.interop.matrix import Matrix
from tests.interop.real_bookie import RealCluster
from tests.interop.storages import Storages

BOOKIES = 4
#: Set by ``make interop`` when it tries the tests that failed once more.
SECOND_ATTEMPT = "INTEROP_SECOND_ATTEMPT"
#: Several JVMs that force their journals to one disk may take their time; only tests of slowness are impatient.
PATIENT = {"add_s": 20.0, "read_s": 20.0}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "build" in metafunc.fixturenames:
        try:
            found: list[Build | str] = list(builds())
        except RuntimeError as error:  # told when the tests run, not to those who only collect them
            found = [str(error)]
        ids = [build.version if isinstance(build, Build) else "missing" for build in found]
        metafunc.parametrize("build", found, ids=ids, indirect=True, scope="session")


@pytest.fixture(scope="session")
def build(request: pytest.FixtureRequest) -> Build:
    """One version of Apache BookKeeper."""
    if isinstance(request.param, str):
        raise RuntimeError(request.param)  # noqa: TRY004 - the parameter is the message
    chosen: Build = request.param
    return chosen


@pytest.fixture(params=[3, 2], ids=["v3", "v2"])
def wire(request: pytest.FixtureRequest) -> int:
    """The version of the wire protocol."""
    version: int = request.param
    return version


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperServer]:
    """A real ZooKeeper."""
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="session")
def real(build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster of real bookies of this version; a test that kills one starts it again."""
    with RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("bookies")) as cluster:
        yield cluster.start(BOOKIES)


@pytest.fixture
def mortal(build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster for one test, whose bookies may die for good."""
    with RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("mortal")) as cluster:
        yield cluster.start(BOOKIES)


Note = Callable[[str], None]
_MATRIX = pytest.StashKey[Matrix]()
_STORAGES = pytest.StashKey[Storages]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_MATRIX] = Matrix()
    config.stash[_STORAGES] = Storages()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome: Any = yield
    item.config.stash[_MATRIX].add(item, outcome.get_result())
    item.config.stash[_STORAGES].add(item, outcome.get_result())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the outcomes of a run of the whole folder to its end; some tests alone would fill cells with half the truth.

    Not so of storages: each test has a cell of its own.
    """
    config = session.config
    config.stash[_STORAGES].save()
    asked_for_some = config.getoption("keyword") or any(not Path(argument).is_dir() for argument in config.args)
    if session.shouldstop or session.shouldfail:
        return
    if SECOND_ATTEMPT in os.environ:
        config.stash[_MATRIX].save_second_attempt()
    elif not asked_for_some:
        config.stash[_MATRIX].save()


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Note:
    """Says in a word or two what the test showed, where that is not that the operation works."""
    return lambda text: record_property("note", text)


PeerFactory = Callable[..., JavaPeer]


@pytest.fixture(scope="session")
def new_peer(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerFactory]:
    """Makes Java clients: metadata URI, wire version, further client properties."""
    directory = tmp_path_factory.mktemp(f"peers-{build.version}")
    peers: list[JavaPeer] = []
    shared: dict[tuple[Any, ...], JavaPeer] = {}

    def make(metadata_uri: str, wire: int, *, own: bool = False, **properties: Any) -> JavaPeer:
        key = (metadata_uri, wire, *sorted(properties.items()))
        if not own and key in shared:
            return shared[key]
        settings = {
            "metadataServiceUri": metadata_uri,
            "useV2WireProtocol": wire == 2,
            "zkTimeout": 8000,
            "readTimeout": 20,
            **properties,
        }
        peer = JavaPeer(build, directory / f"peer-{len(peers)}.log", settings)
        peers.append(peer)
        if not own:
            shared[key] = peer
        return peer

    yield make
    for peer in peers:
        peer.close()


@pytest.fixture
def java(new_peer: PeerFactory, real: RealCluster, wire: int) -> JavaPeer:
    """The Java client on the real bookies."""
    return new_peer(real.metadata_uri, wire)


ClientFactory = Callable[..., Any]


@pytest.fixture
async def new_client() -> AsyncIterator[ClientFactory]:
    """Makes Python clients: metadata URI, settings by group."""
    async with AsyncExitStack() as clients:

        async def make(metadata_uri: str, **options: Any) -> BookKeeper:
            config = ClientConfig().with_changes(**options)
            return await clients.enter_async_context(bkclient.connect(metadata_uri, config=config, rng=Random(5)))

        yield make


@pytest.fixture
async def python(new_client: ClientFactory, real: RealCluster, wire: int) -> BookKeeper:
    """The Python client on the real bookies."""
    client: BookKeeper = await new_client(real.metadata_uri, connections={"protocol_version": wire}, timeouts=PATIENT)
    return client


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A folder for this test."""
    return tmp_path

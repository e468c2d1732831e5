"""TLS and authentication, between either client and the other side's bookies."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from random import Random
from typing import Any, Final

import pytest

import bkclient
from bkclient import BookKeeper, ClientConfig, ConnectionSettings, TimeoutSettings, TlsSettings, errors
from bkclient.errors import BookKeeperError, SecurityError, UnauthorizedAccess
from bkclient.metadata.opening import open_store
from bkclient.security.auth import AuthProvider, SharedSecret
from simbookie.cluster import LocalCluster
from simbookie.security import BookieSecurity, SharedSecretBookie
from simbookie.server import ServerConfig
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.conftest import Note, PeerFactory
from tests.interop.java_peer import JavaError, JavaPeer, pattern
from tests.interop.real_bookie import RealBookie, RealCluster
from tests.interop.test_python_client import payloads_of, written
from tests.tls import MUTUAL, TRUSTING, offering, pem

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

BOOKIES = 2
SIZES: Final[dict[str, Any]] = {"ensemble_size": 2, "write_quorum_size": 2, "ack_quorum_size": 2}
SECRET = "a secret of enough characters"
FACTORY = {"tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory"}
#: Settings of Java's bookies and clients, with the key store type that both sides can read.
IDENTITY_OF_BOOKIE = {
    **FACTORY,
    "tlsKeyStoreType": "PEM",
    "tlsKeyStore": pem("bookie-key"),
    "tlsCertificatePath": pem("bookie"),
}
TRUST = {"tlsTrustStoreType": "PEM", "tlsTrustStore": pem("authority")}
IDENTITY_OF_CLIENT = {
    "tlsClientAuthentication": "true",
    "tlsKeyStoreType": "PEM",
    "tlsKeyStore": pem("client-key"),
    "tlsCertificatePath": pem("client"),
}
AUTH_OF_BOOKIE = {"bookieAuthProviderFactoryClass": "peer.SharedSecret$Bookie", "peerSharedSecret": SECRET}
AUTH_OF_CLIENT = {"clientAuthProviderFactoryClass": "peer.SharedSecret$Client", "peerSharedSecret": SECRET}
KINDS = {
    "tls": IDENTITY_OF_BOOKIE,
    "mutual": {**IDENTITY_OF_BOOKIE, **TRUST, "tlsClientAuthentication": "true", **AUTH_OF_BOOKIE},
    "auth": AUTH_OF_BOOKIE,
    "elsewhere": {**IDENTITY_OF_BOOKIE, "tlsKeyStore": pem("elsewhere-key"), "tlsCertificatePath": pem("elsewhere")},
}

# The Python client on real bookies -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clusters(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], RealCluster]]:
    """Real bookies that demand TLS, TLS of both sides and a plug-in, or a plug-in; started when they are first wanted."""
    started: dict[str, RealCluster] = {}
    with ExitStack() as running:

        def cluster(kind: str) -> RealCluster:
            if kind not in started:
                directory = tmp_path_factory.mktemp(f"secure-{kind}")
                new = running.enter_context(RealCluster.on(zookeeper, build, directory, KINDS[kind]))
                started[kind] = new.start(BOOKIES)
            return started[kind]

        yield cluster


@asynccontextmanager
async def python_on(
    cluster: RealCluster, wire: int, auth: AuthProvider | None = None, **settings: Any
) -> AsyncIterator[BookKeeper]:
    """A Python client with these settings of TLS."""
    config = ClientConfig(
        connections=ConnectionSettings(protocol_version=wire),
        timeouts=TimeoutSettings(add_s=20.0, read_s=20.0),
        tls=TlsSettings(**settings),
    )
    async with bkclient.connect(cluster.metadata_uri, config=config, rng=Random(5), auth=auth) as client:
        yield client


async def ledgers_work(client: BookKeeper) -> None:
    """Writing, reading, and taking over: every kind of connection is used, and large frames."""
    ledger_id = await written(client, 30, **SIZES)
    assert await payloads_of(await client.open_ledger(ledger_id, recover=True)) == [
        pattern(entry_id) for entry_id in range(30)
    ]
    writer = await client.create_ledger(**SIZES)
    await writer.append(bytes(1_000_000))
    reader = await client.open_ledger(writer.ledger_id, recover=True)  # which fences and recovers it
    assert await payloads_of(reader) == [bytes(1_000_000)]
    with pytest.raises(errors.LedgerFenced):
        await writer.append(b"too late")


@pytest.mark.matrix("Python client, TLS")
async def test_python_speaks_tls_with_real_bookies(clusters: Callable[[str], RealCluster], wire: int) -> None:
    cluster = await asyncio.to_thread(clusters, "tls")
    before = [handshakes_of(bookie) for bookie in cluster.bookies]
    async with python_on(cluster, wire, **TRUSTING) as client:
        await ledgers_work(client)
    # Real bookies that offer TLS serve in clear as well.
    assert all(handshakes_of(bookie) > earlier for bookie, earlier in zip(cluster.bookies, before, strict=True))


def handshakes_of(bookie: RealBookie) -> int:
    """How often its log says that TLS was begun."""
    return bookie.log_path.read_text(errors="replace").count("Starting TLS handshake with client")


@pytest.mark.matrix("Python client, TLS of both sides and a plug-in")
async def test_python_shows_its_certificate_and_authenticates(
    clusters: Callable[[str], RealCluster], wire: int
) -> None:
    auth = SharedSecret(SECRET.encode())
    async with python_on(await asyncio.to_thread(clusters, "mutual"), wire, auth, **MUTUAL) as client:
        await ledgers_work(client)


@pytest.mark.matrix("Python client, a plug-in")
async def test_python_authenticates_with_real_bookies(clusters: Callable[[str], RealCluster], wire: int) -> None:
    auth = SharedSecret(SECRET.encode())
    async with python_on(await asyncio.to_thread(clusters, "auth"), wire, auth) as client:
        await ledgers_work(client)


@pytest.mark.matrix("Python client, a plug-in that the bookie does not have")
async def test_python_s_plug_in_is_content_with_a_bookie_that_has_none(
    clusters: Callable[[str], RealCluster], wire: int
) -> None:
    auth = SharedSecret(SECRET.encode())
    async with python_on(await asyncio.to_thread(clusters, "tls"), wire, auth, **TRUSTING) as client:
        await ledgers_work(client)


STRANGER = {**TRUSTING, "trust_file": pem("stranger-authority")}
ANY_HOST = {**TRUSTING, "verify_hostname": False}
SHOWS_STRANGER = {**MUTUAL, "certificate_file": pem("stranger"), "key_file": pem("stranger-key")}


@pytest.mark.parametrize(
    ("kind", "settings", "secret", "error", "reason"),
    [
        pytest.param(
            "tls",
            STRANGER,
            None,
            SecurityError,
            "certificate is not accepted",
            marks=pytest.mark.matrix("Python client, a bookie's certificate it does not trust"),
        ),
        pytest.param(
            "elsewhere",
            TRUSTING,
            None,
            SecurityError,
            "certificate is not accepted",
            marks=pytest.mark.matrix("Python client, a bookie's certificate it does not trust"),
        ),
        pytest.param(
            "auth", TRUSTING, SECRET, SecurityError, "refuses TLS", marks=pytest.mark.matrix("Python client, no TLS")
        ),
        pytest.param(
            "mutual", TRUSTING, SECRET, SecurityError, "", marks=pytest.mark.matrix("Python client, no certificate")
        ),
        pytest.param(
            "mutual",
            SHOWS_STRANGER,
            SECRET,
            SecurityError,
            "",
            marks=pytest.mark.matrix("Python client, a certificate the bookie does not trust"),
        ),
        pytest.param(
            "auth",
            {},
            "another secret altogether",
            UnauthorizedAccess,
            "does not know the shared secret",
            marks=pytest.mark.matrix("Python client, a wrong secret"),
        ),
        pytest.param("auth", {}, None, UnauthorizedAccess, "", marks=pytest.mark.matrix("Python client, no plug-in")),
    ],
    ids=["stranger", "other-host", "no-tls", "no-certificate", "wrong-certificate", "wrong-secret", "no-plug-in"],
)
async def test_what_is_missing_is_told_to_the_application(
    clusters: Callable[[str], RealCluster],
    wire: int,
    note: Note,
    kind: str,
    settings: dict[str, Any],
    secret: str | None,
    error: type[BookKeeperError],
    reason: str,
) -> None:
    cluster = await asyncio.to_thread(clusters, kind)
    right: dict[str, Any] = {"tls": TRUSTING, "mutual": MUTUAL, "auth": {}, "elsewhere": ANY_HOST}[kind]
    async with python_on(cluster, wire, SharedSecret(SECRET.encode()), **right) as client:
        ledger_id = await written(client, 3, **SIZES)
    auth = None if secret is None else SharedSecret(secret.encode())
    async with python_on(cluster, wire, auth, **settings) as client:
        reader = await client.open_ledger(ledger_id, recover=True)  # it is closed, so the metadata say all
        with pytest.raises(error) as caught:
            await reader.read(0)
        assert reason in str(caught.value)
        writer = await client.create_ledger(**SIZES)
        with pytest.raises(BookKeeperError) as failed:
            await writer.append(b"refused")
        assert any(isinstance(cause, error) for cause in causes_of(failed.value)), failed.value
    note(error.__name__)


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


# The Java client on simulated bookies --------------------------------------------------------------------------------


@asynccontextmanager
async def simulated(zookeeper: ZooKeeperServer, root: str, security: BookieSecurity | None) -> AsyncIterator[str]:
    """Simulated bookies in this process; the metadata URI."""
    uri = zookeeper.metadata_uri(root)
    store = await open_store(uri, rng=Random(1), initialise=True)
    try:
        async with LocalCluster(store, BOOKIES, server=ServerConfig(security=security)):
            yield uri
    finally:
        await store.aclose()


_ROOTS = itertools.count(1)


@pytest.fixture
def root(build: Build) -> str:
    """A metadata root for this test."""
    return f"/secure-{build.version}-{next(_ROOTS)}"


async def java_on(new_peer: PeerFactory, uri: str, wire: int, **properties: Any) -> JavaPeer:
    """A Java client of its own; the bookies in this process go on while it starts."""
    return await asyncio.to_thread(lambda: new_peer(uri, wire, own=True, **properties))


async def java_s_ledgers_work(java: JavaPeer) -> None:
    ledger_id = (await java("create", ensemble=2, write_quorum=2, ack_quorum=2))["ledger"]
    await java("append", ledger_id, count=30)
    await java("close", ledger_id)
    await java("open", ledger_id)
    assert await java.payloads(ledger_id) == [pattern(entry_id) for entry_id in range(30)]


@pytest.mark.matrix("Java client, TLS")
async def test_java_speaks_tls_with_simulated_bookies(
    zookeeper: ZooKeeperServer, new_peer: PeerFactory, root: str, wire: int
) -> None:
    async with simulated(zookeeper, root, offering(requires_tls=True)) as uri:
        java = await java_on(new_peer, uri, wire, **FACTORY, **TRUST, tlsHostnameVerificationEnabled="true")
        await java_s_ledgers_work(java)


@pytest.mark.matrix("Java client, TLS of both sides and a plug-in")
async def test_java_shows_its_certificate_and_authenticates(
    zookeeper: ZooKeeperServer, new_peer: PeerFactory, root: str, wire: int
) -> None:
    auth = SharedSecretBookie(SECRET.encode())
    security = offering(requires_certificate=True, requires_tls=True, auth=auth)
    async with simulated(zookeeper, root, security) as uri:
        properties = {**FACTORY, **TRUST, **IDENTITY_OF_CLIENT, **AUTH_OF_CLIENT, "peerAuthAfterTls": "true"}
        await java_s_ledgers_work(await java_on(new_peer, uri, wire, **properties))


@pytest.mark.matrix("Java client, a plug-in")
async def test_java_authenticates_with_simulated_bookies(
    zookeeper: ZooKeeperServer, new_peer: PeerFactory, root: str, wire: int
) -> None:
    async with simulated(zookeeper, root, BookieSecurity(auth=SharedSecretBookie(SECRET.encode()))) as uri:
        await java_s_ledgers_work(await java_on(new_peer, uri, wire, **AUTH_OF_CLIENT))


@pytest.mark.parametrize(
    ("security", "properties"),
    [
        pytest.param(
            lambda: BookieSecurity(auth=SharedSecretBookie(SECRET.encode())),
            {**AUTH_OF_CLIENT, "peerSharedSecret": "another secret altogether"},
            marks=pytest.mark.matrix("Java client, a wrong secret"),
        ),
        pytest.param(
            lambda: BookieSecurity(auth=SharedSecretBookie(SECRET.encode())),
            {},
            marks=pytest.mark.matrix("Java client, no plug-in"),
        ),
        pytest.param(
            lambda: offering(requires_tls=True),
            {},
            marks=pytest.mark.matrix("Java client, no TLS where it is demanded"),
        ),
        pytest.param(lambda: None, {**FACTORY, **TRUST}, marks=pytest.mark.matrix("Java client, no TLS")),
        pytest.param(
            lambda: offering("stranger"),
            {**FACTORY, **TRUST},
            marks=pytest.mark.matrix("Java client, a bookie's certificate it does not trust"),
        ),
    ],
    ids=["wrong-secret", "no-plug-in", "tls-demanded", "no-tls", "stranger"],
)
async def test_java_fails_where_it_should(
    zookeeper: ZooKeeperServer,
    new_peer: PeerFactory,
    root: str,
    wire: int,
    note: Note,
    security: Callable[[], BookieSecurity | None],
    properties: dict[str, str],
) -> None:
    async with simulated(zookeeper, root, security()) as uri:
        java = await java_on(new_peer, uri, wire, **properties)
        ledger_id = (await java("create", ensemble=2, write_quorum=2, ack_quorum=2))["ledger"]
        with pytest.raises(JavaError) as caught:
            await java("append", ledger_id, count=1)
    note(f"{caught.value.name} {caught.value.code}")

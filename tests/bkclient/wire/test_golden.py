"""Our codecs, and the simulated bookie, against bytes heard from Apache BookKeeper itself."""

from __future__ import annotations

from random import Random

import pytest

from bkclient.metadata.memory import MemoryMetadataService
from bkclient.wire.connection import ClientConnection
from bkclient.wire.server_connection import ServerConnection
from simbookie.cluster import LocalCluster
from tests.bkclient.wire.golden_files import (
    CLOSED,
    Exchange,
    Golden,
    content_of,
    conversation,
    converse,
    golden_files,
    without_chance,
)

FILES = golden_files()
EXCHANGES = [
    pytest.param(golden, each, id=f"{golden.path.stem}-{each.name}") for golden in FILES for each in golden.exchanges
]
REQUESTS = [
    pytest.param(golden, bytes.fromhex(each), id=f"{golden.path.stem}-{number}")
    for golden in FILES
    for number, each in enumerate(golden.requests)
]


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def wire_of(content: bytes, wire: int) -> int:
    """Version 2 clients send in version 3 what version 2 lacks."""
    return wire if wire == 3 or content[0] == 2 else 3


def test_two_versions_were_heard_in_both_protocol_versions() -> None:
    assert len({golden.version for golden in FILES}) == 2
    assert len(FILES) == 4
    assert all(len(golden.requests) >= 15 and len(golden.exchanges) >= 19 for golden in FILES)


@pytest.mark.parametrize(("golden", "content"), REQUESTS)
def test_a_request_of_the_java_client_is_understood_and_made_alike(golden: Golden, content: bytes) -> None:
    wire = wire_of(content, golden.wire)

    (received,) = ServerConnection().receive(framed(content))

    assert received.request is not None
    assert received.is_version_supported
    assert received.protocol_version == wire
    again = content_of(received.request, wire, received.txn_id)
    assert without_chance(again, wire, is_request=True) == without_chance(content, wire, is_request=True)


@pytest.mark.parametrize(("golden", "exchange"), EXCHANGES)
def test_the_conversation_is_the_one_we_hold(golden: Golden, exchange: Exchange) -> None:
    names = [name for name, _ in conversation(golden.wire)]
    txn_id = names.index(exchange.name) + 1
    request = conversation(golden.wire)[txn_id - 1][1]

    assert content_of(request, golden.wire, txn_id).hex() == exchange.request


@pytest.mark.parametrize(("golden", "exchange"), EXCHANGES)
def test_an_answer_of_a_real_bookie_is_understood_and_made_alike(golden: Golden, exchange: Exchange) -> None:
    if exchange.answer == CLOSED:
        assert exchange.name in CLOSING
        return
    content = bytes.fromhex(exchange.answer)
    request = dict(conversation(golden.wire))[exchange.name]
    txn_ids = iter([[name for name, _ in conversation(golden.wire)].index(exchange.name) + 1])
    client: ClientConnection[str] = ClientConnection(golden.wire, txn_ids=txn_ids)
    client.send(request, "token")

    ((answered, token, _status, response),) = client.receive(framed(content))

    assert (answered, token) == (request, "token")
    if response is not None:
        server = ServerConnection()
        (received,) = server.receive(framed(bytes.fromhex(exchange.request)))
        again = server.encode_response(received, response)[4:]
        assert without_chance(again, golden.wire, is_request=False) == without_chance(
            content, golden.wire, is_request=False
        )


#: What bookies answer by closing the connection.
CLOSING: set[str] = set()


@pytest.mark.parametrize("golden", FILES, ids=lambda golden: golden.path.stem)
async def test_the_simulated_bookie_answers_as_a_real_one(golden: Golden) -> None:
    name = "golden"
    store = MemoryMetadataService.named(name).session(rng=Random(1))
    try:
        async with LocalCluster(store, 1) as cluster:
            server = cluster.server(cluster.bookie_ids[0])
            ours = await converse(server.host, server.port, golden.wire)
    finally:
        await store.aclose()
        MemoryMetadataService.forget(name)

    def plain(exchanges: tuple[Exchange, ...] | list[Exchange]) -> dict[str, str]:
        return {
            each.name: each.answer
            if each.answer == CLOSED
            else without_chance(bytes.fromhex(each.answer), golden.wire, is_request=False).hex()
            for each in exchanges
        }

    assert plain(ours) == plain(golden.exchanges)

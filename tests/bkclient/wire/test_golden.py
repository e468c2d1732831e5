"""Our codecs, and the simulated bookie, against bytes heard from Apache BookKeeper itself."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from bkclient.metadata.memory import MemoryMetadataService
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import AddRequest, AddResponse, Request, Response
from bkclient.wire.server_connection import ServerConnection
from simbookie.cluster import LocalCluster
from simbookie.server import ServerConfig
from tests.bkclient.wire.conversation import CLOSING, FRAME_LIMIT, Step, content_of, conversation, converse
from tests.bkclient.wire.golden_files import CLOSED, Exchange, Golden, golden_files, wire_of, without_chance

FILES = golden_files()
EXCHANGES = [(golden, each) for golden in FILES for each in golden.exchanges]
REQUESTS = [
    pytest.param(golden, bytes.fromhex(each), id=f"{golden.path.stem}-{number}")
    for golden in FILES
    for number, each in enumerate(golden.requests)
]


def name_of(value: Golden | Exchange) -> str:
    return value.path.stem if isinstance(value, Golden) else value.name


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def step_of(golden: Golden, exchange: Exchange) -> tuple[int, Step]:
    """The transaction id that the conversation gives a step, and the step."""
    for txn_id, step in enumerate(conversation(golden.wire), 1):
        if step.name == exchange.name:
            return txn_id, step
    raise LookupError(exchange.name)


def test_two_versions_were_heard_in_both_protocol_versions() -> None:
    assert len({golden.version for golden in FILES}) == 2
    assert len(FILES) == 4
    assert all(len(golden.requests) >= 15 for golden in FILES)


@pytest.mark.parametrize("golden", FILES, ids=name_of)
def test_every_step_of_the_conversation_was_answered_by_a_real_bookie(golden: Golden) -> None:
    assert [each.name for each in golden.exchanges] == [step.name for step in conversation(golden.wire)]


@pytest.mark.parametrize("wire", [2, 3])
def test_both_versions_of_bookkeeper_answer_alike(wire: int) -> None:
    one, other = ([each.answer_without_chance for each in file.exchanges] for file in FILES if file.wire == wire)

    assert one == other


@pytest.mark.parametrize("content", [param.values[1] for param in REQUESTS], ids=[param.id for param in REQUESTS])
def test_a_request_of_the_java_client_is_understood_and_made_alike(content: bytes) -> None:
    (received,) = ServerConnection().receive(framed(content))

    assert received.request is not None
    assert received.is_version_supported
    assert received.protocol_version == wire_of(content)
    again = content_of(received.request, wire_of(content), received.txn_id)
    assert without_chance(again, is_request=True) == without_chance(content, is_request=True)


@pytest.mark.parametrize(("golden", "exchange"), EXCHANGES, ids=name_of)
def test_the_conversation_is_the_one_we_hold(golden: Golden, exchange: Exchange) -> None:
    txn_id, step = step_of(golden, exchange)

    assert step.content(golden.wire, txn_id).hex() == exchange.request


@pytest.mark.parametrize(("golden", "exchange"), EXCHANGES, ids=name_of)
def test_real_bookies_close_connections_over_what_we_expect(golden: Golden, exchange: Exchange) -> None:
    assert (exchange.answer == CLOSED) == (exchange.name in CLOSING), golden.path


def is_made_by_clients(golden: Golden, exchange: Exchange) -> bool:
    return exchange.answer != CLOSED and not isinstance(step_of(golden, exchange)[1].request, bytes)


@pytest.mark.parametrize(("golden", "exchange"), [each for each in EXCHANGES if is_made_by_clients(*each)], ids=name_of)
def test_an_answer_of_a_real_bookie_is_understood_and_made_alike(golden: Golden, exchange: Exchange) -> None:
    (received,) = ServerConnection().receive(framed(bytes.fromhex(exchange.request)))

    again = ServerConnection().encode_response(received, understood(golden, exchange))

    content = bytes.fromhex(exchange.answer)
    assert without_chance(again[4:], is_request=False) == without_chance(content, is_request=False)


def understood(golden: Golden, exchange: Exchange) -> Response:
    """What our client makes of an answer, as one to the request that it belongs to."""
    txn_id, step = step_of(golden, exchange)
    request = cast("Request", step.request)
    client: ClientConnection[str] = ClientConnection(step.wire or golden.wire, txn_ids=iter([txn_id]))
    client.send(request, "token")

    ((answered, token, status, response),) = client.receive(framed(bytes.fromhex(exchange.answer)))

    assert (answered, token) == (request, "token")
    if response is None:
        assert isinstance(request, AddRequest), "only the outcome of an addition is all of its answer"
        return AddResponse(status, request.ledger_id, request.entry_id)
    return response


@pytest.mark.parametrize("golden", FILES, ids=name_of)
async def test_the_simulated_bookie_answers_as_a_real_one(golden: Golden) -> None:
    name = "golden"
    store = MemoryMetadataService.named(name).session(rng=Random(1))
    try:
        async with LocalCluster(store, 1, server=ServerConfig(max_frame_size=FRAME_LIMIT)) as cluster:
            server = cluster.server(cluster.bookie_ids[0])
            ours = await converse(server.host, server.port, golden.wire)
    finally:
        await store.aclose()
        MemoryMetadataService.forget(name)

    assert {each.name: each.answer_without_chance for each in ours} == {
        each.name: each.answer_without_chance for each in golden.exchanges
    }

"""What a failed request says about a bookie's health is noted, whatever asked; and every handler of answers sees to it."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

import bkclient
from bkclient._client.exchange import ask
from bkclient.config import ClientConfig, ConnectionSettings
from bkclient.errors import BookKeeperError, Code, UnexpectedCondition
from bkclient.placement import BookieWatcher
from bkclient.repair.admin import core_of
from bkclient.repair.reads import CopyReads, ReadBatch, read_any_copy, write_copies
from bkclient.repair.replicas import entries_on
from bkclient.wire.messages import ReadRequest, Request
from tests.bkclient._client.reading.ledgers import reader_of, tail_of, written
from tests.bkclient.fakes import FakeCluster, advanced_writer_of, fake_cluster, in_virtual_time
from tests.settling import settled

#: Prepares a ledger, and returns what asks the bookies.
Story = Callable[[FakeCluster], Awaitable[Callable[[], Awaitable[object]]]]


async def appending(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    writer = await written(where, 1)
    return lambda: writer.append(b"x")


async def forcing(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    writer = await advanced_writer_of(where, deferred_sync=True)
    await writer.append(0, b"0")
    return writer.force


async def telling_the_lac(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    writer = await written(where, 2)
    return writer.write_explicit_lac


async def recovering(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    writer = await written(where, 1)
    return lambda: where.bk.open_ledger(writer.ledger_id, password=b"secret")


async def reading(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    reader = await reader_of(where, 1)
    return lambda: reader.read(0)


async def reading_in_parallel(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    reader = await reader_of(where, 1)
    return lambda: reader.read(0, parallel=True)


async def reading_a_batch(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    reader = await reader_of(where, 2)
    return lambda: reader.read_batch(0, 2)


async def asking_for_the_lac(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    reader = await tail_of(where, await written(where, 2))
    return reader.read_last_add_confirmed


async def trying_for_the_lac(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    reader = await tail_of(where, await written(where, 2))
    return reader.try_read_last_add_confirmed


async def polling(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    reader = await tail_of(where, await written(where, 2))
    return lambda: reader.read_last_add_confirmed_and_entry(2, 10.0)


async def checking_copies(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    reader = await reader_of(where, 1)
    batch = ReadBatch(CopyReads(core_of(where.bk), 1), reader._codec)

    async def check() -> None:
        await batch.read(0, "a", lambda _code, _entry: None)
        await batch.drained()

    return check


async def copying(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    reader = await reader_of(where, 1)
    return lambda: read_any_copy(core_of(where.bk), reader._codec, 0, "abc")


async def storing_copies(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    reader = await reader_of(where, 1)
    return lambda: write_copies(core_of(where.bk), reader._codec, 0, b"x" * 100, "ab")


async def listing_entries(where: FakeCluster) -> Callable[[], Awaitable[object]]:
    reader = await reader_of(where, 1)
    return lambda: entries_on(core_of(where.bk), reader.ledger_id, "a")


V2 = ClientConfig(connections=ConnectionSettings(protocol_version=2))
STORIES: dict[str, tuple[Story, ClientConfig]] = {
    "append": (appending, ClientConfig()),
    "force": (forcing, ClientConfig()),
    "explicit LAC": (telling_the_lac, ClientConfig()),
    "recovery": (recovering, ClientConfig()),
    "read": (reading, ClientConfig()),
    "parallel read": (reading_in_parallel, ClientConfig()),
    "batch": (reading_a_batch, V2),
    "LAC": (asking_for_the_lac, ClientConfig()),
    "LAC over version 2": (asking_for_the_lac, V2),
    "LAC, first answer": (trying_for_the_lac, ClientConfig()),
    "long poll": (polling, ClientConfig()),
    "check of copies": (checking_copies, ClientConfig()),
    "copy": (copying, ClientConfig()),
    "store of a copy": (storing_copies, ClientConfig()),
    "list of entries": (listing_entries, ClientConfig()),
}
#: Those whose answers have a digest. Fake bookies know no batches; those have tests of their own.
WITH_DIGEST = set(STORIES) - {"append", "force", "explicit LAC", "batch", "store of a copy", "list of entries"}


@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.BOOKIE_NOT_AVAILABLE, Code.READ, Code.NO_SUCH_ENTRY])
@pytest.mark.parametrize("name", STORIES)
def test_every_failed_request_is_noted_once(name: str, code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[tuple[str, int]] = []
    monkeypatch.setattr(BookieWatcher, "on_request_failed", lambda _, bookie_id, code: noted.append((bookie_id, code)))
    story, config = STORIES[name]

    @in_virtual_time
    async def run() -> None:
        async with fake_cluster(config=config) as where:
            operation = await story(where)
            await settled()
            where.sent.clear()
            noted.clear()
            for bookie in where.transport.bookies.values():
                bookie.code = code
            with suppress(BookKeeperError):
                await operation()
            await settled()
            assert where.sent
            assert Counter(noted) == Counter((bookie_id, code) for bookie_id, _ in where.sent)

    run()


@pytest.mark.parametrize("name", sorted(WITH_DIGEST))
def test_a_corrupt_answer_is_noted_as_a_failure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[tuple[str, int]] = []
    monkeypatch.setattr(BookieWatcher, "on_request_failed", lambda _, bookie_id, code: noted.append((bookie_id, code)))
    story, config = STORIES[name]

    @in_virtual_time
    async def run() -> None:
        async with fake_cluster(config=config) as where:
            operation = await story(where)
            await settled()
            where.sent.clear()
            noted.clear()
            for bookie in where.transport.bookies.values():
                bookie.entries = {key: body[:-1] + bytes([body[-1] ^ 1]) for key, body in bookie.entries.items()}
            with suppress(BookKeeperError):
                await operation()
            await settled()
            assert noted
            assert {code for _, code in noted} == {Code.DIGEST_MATCH}

    run()


def test_every_handler_of_answers_goes_through_the_exchange() -> None:
    found: dict[str, bool] = {}
    for path in sorted(Path(bkclient.__file__).parent.glob("_client/**/*.py")) + sorted(REPAIR.glob("*.py")):
        tree = ast.parse(path.read_text())
        handed = {name for node in ast.walk(tree) if isinstance(node, ast.Call) for name in handed_to_a_transport(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in handed:
                decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
                found[f"{path.stem}.{node.name}"] = any(
                    text.startswith(("answers(", "outcomes")) for text in decorators
                )
    assert len(found) >= 7
    assert sorted(name for name, is_exchange in found.items() if not is_exchange) == []


REPAIR = Path(bkclient.__file__).parent / "repair"


def handed_to_a_transport(call: ast.Call) -> list[str]:
    """The names of the handlers that ``call``, if it submits a request, gives to a transport."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if function not in {"submit", "_submit"}:
        return []
    return [
        argument.attr if isinstance(argument, ast.Attribute) else ast.unparse(argument) for argument in call.args[-1:]
    ]


async def test_an_answer_that_raises_when_it_is_decoded_fails_the_question_and_is_reported() -> None:
    def decode(request: Request, response: object) -> int:
        raise ZeroDivisionError

    async with fake_cluster() as where:
        reader = await reader_of(where, 1)
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        with pytest.raises(UnexpectedCondition) as caught:
            await ask(core_of(where.bk), "a", ReadRequest(reader.ledger_id, 0), decode, "a question")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert (caught.value.ledger_id, caught.value.entry_id) == (reader.ledger_id, 0)
        assert caught.value.message == "a handler of a question raised ZeroDivisionError()"
        assert reported == [caught.value.__cause__]

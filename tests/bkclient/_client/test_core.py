"""What the handles of a client share: calls at its end, and metadata updates that somebody waits for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bkclient._client.core import ClientCore
from bkclient.errors import ClientClosed, MetadataStoreError
from bkclient.ledger import LedgerState
from bkclient.protocol.intents import MarkInRecovery
from bkclient.protocol.update import LocalMetadata, UpdateHandle
from bkclient.repair.admin import core_of
from tests.bkclient.fakes import FakeCluster, fake_cluster, writer_of


class Reports:
    """What was handed to the event loop's exception handler."""

    def __init__(self) -> None:
        self.contexts: list[dict[str, Any]] = []
        self.has_come = asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(self._note)

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.contexts.append(context)
        self.has_come.set()


async def marking(where: FakeCluster) -> UpdateHandle:
    """An update that marks a new ledger as being recovered."""
    ledger_id = (await writer_of(where)).ledger_id
    local = LocalMetadata(where.service.read(ledger_id))
    return UpdateHandle(local, local.begin(MarkInRecovery()))


@pytest.mark.rule("API-17")
async def test_all_that_asked_are_called_at_the_end_even_if_one_of_them_fails() -> None:
    planted, called = RuntimeError("planted"), list[str]()

    def fails() -> None:
        raise planted

    async with fake_cluster() as where:
        reports, core = Reports(), core_of(where.bk)
        core.at_close(lambda: called.append("first"))
        core.at_close(fails)
        core.at_close(lambda: called.append("last"))

        core.close()
        core.close()

    assert called == ["first", "last"]
    assert [context["exception"] for context in reports.contexts] == [planted]
    assert "fails" in reports.contexts[0]["message"]


async def test_what_took_its_request_back_is_not_called_at_the_end() -> None:
    called: list[str] = []
    async with fake_cluster() as where:
        cancel = core_of(where.bk).at_close(lambda: called.append("cancelled"))
        core_of(where.bk).at_close(lambda: called.append("kept"))
        cancel()
        cancel()

    assert called == ["kept"]


async def ended(core: ClientCore, update: UpdateHandle) -> UpdateHandle:
    """Run ``update``, and wait until its end is told; it is told later, and once."""
    told: asyncio.Queue[UpdateHandle] = asyncio.Queue()
    core.run_update(update, told.put_nowait)
    assert told.empty()
    async with asyncio.timeout(10):
        end = await told.get()
    assert told.empty()
    return end


@pytest.mark.rule("API-17")
async def test_an_update_is_driven_by_a_task_that_says_what_it_is_for() -> None:
    async with fake_cluster() as where:
        update = await marking(where)
        where.store.gate.clear()
        core_of(where.bk).run_update(update, lambda _: None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        names = [task.get_name() for task in asyncio.all_tasks()]
        where.store.gate.set()

    assert [name for name in names if update.cause in name] == [f"metadata update ({update.cause})"]


async def test_an_update_that_ended_before_it_is_run_is_told_and_not_written() -> None:
    async with fake_cluster() as where:
        update = await marking(where)
        update.on_error(MetadataStoreError("away", ledger_id=update.ledger_id))

        assert await ended(core_of(where.bk), update) is update
        assert isinstance(update.error, MetadataStoreError)
        assert where.store.writes == 0


@pytest.mark.rule("API-17")
async def test_an_update_of_a_client_that_is_closed_fails_with_the_id_of_its_ledger() -> None:
    async with fake_cluster() as where:
        update, core = await marking(where), core_of(where.bk)
        core.close()

        await ended(core, update)

        assert isinstance(update.error, ClientClosed)
        assert update.error.ledger_id == update.ledger_id
        assert where.store.writes == 0
        assert where.metadata(update.ledger_id).state is LedgerState.OPEN


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_handler_of_an_update_that_fails_is_reported_and_ends_nothing_else(is_closed: bool) -> None:
    planted = RuntimeError("planted")

    def fails(_: UpdateHandle) -> None:
        raise planted

    async with fake_cluster() as where:
        reports, core, update = Reports(), core_of(where.bk), await marking(where)
        if is_closed:
            core.close()
        core.run_update(update, fails)
        async with asyncio.timeout(10):
            await reports.has_come.wait()
        if not is_closed:
            assert (await where.bk.create_ledger()).ledger_id > update.ledger_id

    assert [context["exception"] for context in reports.contexts] == [planted]
    assert "fails" in reports.contexts[0]["message"]

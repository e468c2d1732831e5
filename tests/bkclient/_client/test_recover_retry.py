"""How an application bounds and repeats a recovery: the loop that docs/using/recovery.md shows, run as it stands there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import bkclient
from bkclient import LedgerReader
from bkclient.errors import BookKeeperError, Code, LedgerRecoveryFailed, UnauthorizedAccess
from bkclient.ledger import LedgerState
from tests.bkclient.fakes import fake_cluster, writer_of
from tests.bkclient.transport.scripted_bookie import until

PAGE = Path(__file__).parents[3] / "docs" / "using" / "recovery.md"


OpenWithin = Callable[..., Awaitable[LedgerReader]]


def open_within(
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    timeout: Callable[[float], asyncio.Timeout] = asyncio.timeout,
) -> OpenWithin:
    """The function on the page."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    clock = SimpleNamespace(timeout=timeout, sleep=sleep)
    scope = {**vars(bkclient), "asyncio": clock, "BookKeeperError": BookKeeperError}
    exec(compile("from __future__ import annotations\n" + code, str(PAGE), "exec"), scope)
    function: OpenWithin = scope["open_within"]
    return function


@pytest.mark.rule("H-34")
@pytest.mark.rule("REC-39")
async def test_the_loop_ends_with_the_ledger_recovered_once_bookies_are_back() -> None:
    pauses: list[float] = []
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        for name in "ab":
            where.transport.bookies[name].code = Code.BOOKIE_NOT_AVAILABLE

        async def bookies_return(pause_s: float) -> None:
            pauses.append(pause_s)
            if len(pauses) == 3:
                for name in "ab":
                    where.transport.bookies[name].code = None

        reader = await open_within(bookies_return)(where.bk, writer.ledger_id, 60.0, password=b"secret")

        assert (reader.last_add_confirmed, pauses) == (0, [0.1, 0.2, 0.4])


@pytest.mark.rule("H-34")
async def test_the_loop_is_bounded_and_leaves_the_ledger_to_the_next_one() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        where.transport.hold("abc")

        bound = asyncio.timeout(None)
        attempt = asyncio.ensure_future(
            open_within(timeout=lambda _: bound)(where.bk, writer.ledger_id, 60.0, password=b"secret")
        )
        await until(lambda: where.metadata(writer.ledger_id).state is not LedgerState.OPEN)
        bound.reschedule(asyncio.get_running_loop().time())
        with pytest.raises(TimeoutError):
            await attempt
        assert where.metadata(writer.ledger_id).state is LedgerState.IN_RECOVERY

        where.transport.release("abc")
        assert (await open_within()(where.bk, writer.ledger_id, 60.0, password=b"secret")).last_add_confirmed == 0


@pytest.mark.rule("H-34")
async def test_the_loop_does_not_repeat_what_cannot_succeed() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)

        with pytest.raises(UnauthorizedAccess):
            await open_within()(where.bk, writer.ledger_id, 60.0, password=b"wrong")


@pytest.mark.rule("H-33")
async def test_an_application_finds_the_error_behind_a_failed_recovery() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        for name in "ab":
            where.transport.bookies[name].code = Code.DATA_UNKNOWN

        with pytest.raises(LedgerRecoveryFailed) as caught:
            await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)

        cause = caught.value.__cause__
        assert isinstance(cause, BookKeeperError)
        assert cause.code == Code.DATA_UNKNOWN
        assert cause.bookie_id in {"a", "b"}

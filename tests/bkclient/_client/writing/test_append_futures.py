"""The future of an append is, to whatever uses it, a future as asyncio's; and none of those is made before one is needed."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bkclient import AppendFuture
from bkclient._client.writing.outcomes import AppendOutcomes
from bkclient.errors import LedgerFenced, QuorumTimeout
from bkclient.protocol.adds import NewEntry
from tests.bkclient.fakes import advanced_writer_of, fake_cluster, writer_of
from tests.bkclient.inside import shell_of

LEDGER = 7


def entries(first: int, last: int) -> list[NewEntry]:
    return [NewEntry(entry_id, b"x", entry_id - 1, entry_id + 1) for entry_id in range(first, last + 1)]


class Ours:
    """Appends of one writer, of which the first ones are done."""

    def __init__(self, count: int) -> None:
        self.outcomes = AppendOutcomes(LEDGER, asyncio.get_running_loop())
        self.futures: list[Any] = [AppendFuture(self.outcomes, entry_id) for entry_id in range(count)]

    def confirm(self, count: int) -> None:
        first = self.outcomes.first
        if count and first < len(self.futures) and first not in self.outcomes.failed:
            self.outcomes.confirm(entries(first, min(first + count, len(self.futures)) - 1))

    def fail(self) -> None:
        for entry_id in range(self.outcomes.first, len(self.futures)):
            self.outcomes.fail(entry_id, LedgerFenced(ledger_id=LEDGER, entry_id=entry_id))


class Asyncios:
    """The same with a future of asyncio's for each."""

    def __init__(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        self.futures: list[Any] = [loop.create_future() for _ in range(count)]
        self.first = 0
        self.has_failed = False

    def confirm(self, count: int) -> None:
        if not self.has_failed:
            last = min(self.first + count, len(self.futures))
            for entry_id in range(self.first, last):
                if not self.futures[entry_id].done():
                    self.futures[entry_id].set_result(entry_id)
            self.first = last

    def fail(self) -> None:
        self.has_failed = True
        for entry_id, future in enumerate(self.futures):
            if not future.done():
                future.set_exception(LedgerFenced(ledger_id=LEDGER, entry_id=entry_id))
                future.exception()


def attempted(call: Callable[[], Any]) -> Any:
    """What a call comes to."""
    try:
        found = call()
        return (type(found), str(found)) if isinstance(found, BaseException) else found
    except BaseException as error:  # noqa: BLE001 - cancellations too
        return type(error), str(error)


async def awaited(thing: Awaitable[Any]) -> Any:
    try:
        return await thing
    except BaseException as error:  # noqa: BLE001 - cancellations too
        return type(error), str(error)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("confirm"), st.integers(1, 3)),
        st.tuples(st.just("fail"), st.just(0)),
        st.tuples(st.just("turn"), st.just(0)),
        st.tuples(
            st.sampled_from(["cancel", "callback", "no callback", "done", "cancelled", "result", "exception", "await"]),
            st.integers(0, 4),
        ),
    ),
    max_size=25,
)


@given(STEPS)
@example([("callback", 1), ("callback", 0), ("confirm", 3), ("turn", 0), ("callback", 0), ("turn", 0)])
@example([("await", 2), ("cancel", 2), ("turn", 0), ("confirm", 3), ("result", 2), ("exception", 1)])
@example([("confirm", 1), ("callback", 3), ("fail", 0), ("turn", 0), ("await", 4), ("result", 0), ("cancel", 1)])
def test_they_do_what_those_of_asyncio_do(steps: list[tuple[str, int]]) -> None:
    async def play(kind: type[Ours | Asyncios]) -> list[Any]:
        appends = kind(5)
        seen: list[Any] = []

        def called(future: Any) -> None:
            seen.append(("called with", appends.futures.index(future), future.done()))

        async def waiting(number: int) -> None:
            seen.append(("awaited", number, await awaited(appends.futures[number])))

        tasks = []
        for step, number in steps:
            future = appends.futures[number]
            match step:
                case "confirm":
                    appends.confirm(number)
                case "fail":
                    appends.fail()
                case "turn":
                    await asyncio.sleep(0)
                case "callback":
                    future.add_done_callback(called)
                case "no callback":
                    seen.append(future.remove_done_callback(called))
                case "await":
                    tasks.append(asyncio.create_task(waiting(number)))
                case _:
                    seen.append((step, number, attempted(getattr(future, step))))
        appends.confirm(5)
        await asyncio.gather(*tasks)
        return [*seen, *(attempted(future.result) for future in appends.futures)]

    assert asyncio.run(play(Ours)) == asyncio.run(play(Asyncios))


STATES = ["pending", "acknowledged", "failed", "cancelled", "cancelled for a reason"]


async def reached(kind: type[Ours | Asyncios], state: str) -> Any:
    """A future in a state; a pending one is acknowledged a little later."""
    appends = kind(1)
    (future,) = appends.futures
    match state:
        case "pending":
            asyncio.get_running_loop().call_later(0.001, appends.confirm, 1)
        case "acknowledged":
            appends.confirm(1)
        case "failed":
            appends.fail()
        case "cancelled":
            future.cancel()
        case _:
            future.cancel(msg="a reason")
    return future


async def waited(future: Any) -> Any:
    done, pending = await asyncio.wait([future], timeout=5)
    return (done, pending) == ({future}, set())


async def completed(future: Any) -> Any:
    return [await awaited(each) for each in asyncio.as_completed([future])]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "used",
    [
        lambda future: future,
        asyncio.gather,
        lambda future: asyncio.gather(future, return_exceptions=True),
        lambda future: asyncio.gather(future, asyncio.sleep(0.002)),
        lambda future: asyncio.wait_for(future, 5),
        asyncio.shield,
        asyncio.ensure_future,
        waited,
        completed,
    ],
    ids=["await", "gather", "gather errors", "gather two", "wait_for", "shield", "ensure_future", "wait", "completed"],
)
def test_asyncio_takes_them_for_futures(used: Callable[[Any], Awaitable[Any]], state: str) -> None:
    async def outcome(kind: type[Ours | Asyncios]) -> Any:
        found = await awaited(used(await reached(kind, state)))
        if isinstance(found, list):
            return [(type(each), str(each)) if isinstance(each, BaseException) else each for each in found]
        return found

    assert asyncio.run(outcome(Ours)) == asyncio.run(outcome(Asyncios))


async def test_one_that_times_out_is_cancelled_and_the_entry_goes_on() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        future = await writer.submit(b"x")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.001)
        assert future.cancelled()
        where.transport.release("abc")
        await writer.flush()
        assert writer.last_add_confirmed == future.entry_id == 0


async def test_a_set_of_futures_loses_those_that_are_done() -> None:
    """The usual way to keep them: a callback that discards gets what was put in."""
    appends = Ours(3)
    kept = set(appends.futures)
    for future in appends.futures:
        future.add_done_callback(kept.discard)
    appends.confirm(2)
    await asyncio.sleep(0)
    assert kept == {appends.futures[2]}


@pytest.mark.parametrize("kind", [Ours, Asyncios])
async def test_a_callback_is_taken_back_as_often_as_it_was_given_and_no_other(kind: type[Ours | Asyncios]) -> None:
    appends, seen = kind(1), []
    (future,) = appends.futures

    def first(_: object) -> None:
        seen.append("first")

    def second(_: object) -> None:
        seen.append("second")

    for callback in (first, second, first):
        future.add_done_callback(callback)
    assert future.remove_done_callback(first) == 2
    assert future.remove_done_callback(first) == 0
    appends.confirm(1)
    await asyncio.sleep(0)
    assert seen == ["second"]


async def test_asyncio_names_a_callback_by_its_function() -> None:
    appends = Ours(1)
    appends.futures[0].add_done_callback(completed)
    assert "completed" in repr(appends.outcomes.awaited[0])


async def test_a_callback_runs_in_its_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    context = contextvars.copy_context()
    context.run(variable.set, "given")
    appends, seen = Ours(1), []
    appends.futures[0].add_done_callback(lambda _: seen.append(variable.get()), context=context)
    appends.futures[0].add_done_callback(lambda _: seen.append(variable.get()))
    appends.confirm(1)
    await asyncio.sleep(0)
    assert seen == ["given", "none"]


async def test_it_tells_what_it_is() -> None:
    appends = Ours(4)
    appends.confirm(1)
    appends.futures[1].cancel()
    appends.outcomes.fail(2, QuorumTimeout(ledger_id=LEDGER, entry_id=2))
    assert [repr(future) for future in appends.futures] == [
        "<AppendFuture ledger_id=7 entry_id=0 acknowledged>",
        "<AppendFuture ledger_id=7 entry_id=1 cancelled>",
        "<AppendFuture ledger_id=7 entry_id=2 failed by QuorumTimeout>",
        "<AppendFuture ledger_id=7 entry_id=3 pending>",
    ]
    assert appends.futures[3].get_loop() is asyncio.get_running_loop()
    assert list(appends.outcomes.awaited) == [1], "to say so nothing is made"


async def test_every_failure_is_an_error_of_its_own_that_names_its_entry() -> None:
    appends = Ours(3)
    error = LedgerFenced()
    for entry_id in range(3):
        assert appends.outcomes.fail(entry_id, error)
        assert not appends.outcomes.fail(entry_id, QuorumTimeout(ledger_id=LEDGER)), "the first one counts"
    found = [future.exception() for future in appends.futures]
    assert [(each.ledger_id, each.entry_id) for each in found] == [(LEDGER, 0), (LEDGER, 1), (LEDGER, 2)]
    assert len({id(each) for each in (error, *found)}) == 4
    assert appends.futures[0].exception() is found[0]


class MakesNoFutures(asyncio.SelectorEventLoop):
    def create_future(self) -> asyncio.Future[Any]:
        raise AssertionError("a future was made")


def test_nothing_is_made_for_entries_whose_outcome_is_asked_for_after_they_are_acknowledged() -> None:
    with closing(MakesNoFutures()) as loop:
        outcomes = AppendOutcomes(LEDGER, loop)
        future = AppendFuture(outcomes, 0)
        outcomes.confirm(entries(0, 0))
        assert (future.done(), future.cancelled(), future.cancel()) == (True, False, False)
        assert (future.result(), future.exception()) == (0, None)
        with pytest.raises(StopIteration) as end:
            next(future.__await__())
        assert end.value.value == 0


@pytest.mark.parametrize("make", [writer_of, advanced_writer_of])
async def test_nothing_is_made_for_entries_that_nobody_waits_for(make: Callable[..., Any]) -> None:
    async with fake_cluster() as where:
        writer = await make(where)
        where.transport.hold("abc")
        is_advanced = make is advanced_writer_of
        futures = [await writer.submit(*((entry_id,) if is_advanced else ()), b"x") for entry_id in range(5)]
        assert not any(future.done() for future in futures)
        outcomes = shell_of(writer).outcomes
        assert (len(outcomes.awaited), len(outcomes.failed), outcomes.first) == (0, 0, 0)
        last = asyncio.create_task(awaited(futures[4]))
        await asyncio.sleep(0)
        assert list(outcomes.awaited) == [4]
        where.transport.release("abc")
        assert await last == 4
        assert [await future for future in futures] == [0, 1, 2, 3, 4]
        assert (len(outcomes.awaited), outcomes.first) == (0, 5)


async def test_what_was_in_flight_when_the_writer_ended_is_told_to_those_who_ask_later() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"0")
        where.transport.hold("abc")
        futures = [await writer.submit(b"x") for _ in range(3)]
        await writer.close()
        for future in futures:
            assert future.done()
            with pytest.raises(Exception, match=f"entry {future.entry_id}"):
                future.result()
            with pytest.raises(Exception, match=f"entry {future.entry_id}"):
                await future

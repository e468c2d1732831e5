"""The contract of the metadata seam, held by every store."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Generic, TypeVar

import pytest

from bkclient.errors import (
    ArgumentError,
    BookieNotAvailable,
    ClientClosed,
    LedgerExists,
    MetadataSerializationError,
    MetadataVersionConflict,
    NoSuchLedger,
)
from bkclient.ledger import DigestType, Fragment, LedgerMetadata, LedgerState, Versioned
from bkclient.metadata.base import BookieAddress, BookieSets, MetadataStore
from bkclient.metadata.paths import LEDGER_ID_MAX

OpenSession = Callable[[], Awaitable[MetadataStore]]
T = TypeVar("T")

ADDRESS = BookieAddress("127.0.0.1", 3181)
OTHER_ADDRESS = BookieAddress("127.0.0.1", 3182)
PATIENCE_S = 20


def ledger(ledger_id: int, *bookies: str) -> LedgerMetadata:
    ensemble = bookies or ("b1:1", "b2:1", "b3:1")
    return LedgerMetadata(ledger_id, len(ensemble), 1, 1, (Fragment(0, ensemble),))


class Heard(Generic[T]):
    """A listener that remembers, and that a test can wait for."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._news = asyncio.Event()

    def __call__(self, value: T) -> None:
        self.values.append(value)
        self._news.set()

    async def until(self, is_enough: Callable[[list[T]], bool]) -> list[T]:
        async with asyncio.timeout(PATIENCE_S):
            while not is_enough(self.values):
                self._news.clear()
                await self._news.wait()
        return self.values

    async def last(self, expected: T) -> list[T]:
        return await self.until(lambda values: values[-1:] == [expected])


async def listed(store: MetadataStore) -> list[int]:
    return [ledger_id async for ledger_id in store.list_ledgers()]


class TestLedgers:
    """Registers with compare-and-set."""

    async def test_a_created_ledger_is_read_back_at_version_0(self, store: MetadataStore) -> None:
        created = await store.create_ledger(
            replace(ledger(5), digest_type=DigestType.HMAC, password=b"x", custom_metadata={"k": b"v"}, ctime_ms=17)
        )
        assert created.version == 0
        assert created.metadata.custom_metadata == {"k": b"v"}
        assert await store.read_ledger(5) == created

    @pytest.mark.rule("API-6")
    async def test_a_taken_id_is_refused_and_its_value_kept(self, store: MetadataStore) -> None:
        first = await store.create_ledger(ledger(5, "a:1"))
        with pytest.raises(LedgerExists, match="ledger 5") as caught:
            await store.create_ledger(ledger(5, "b:1"))
        assert caught.value.ledger_id == 5
        assert await store.read_ledger(5) == first

    @pytest.mark.rule("API-6")
    @pytest.mark.behaviour("T-48")
    async def test_a_creation_that_is_repeated_with_its_token_succeeds(self, open_session: OpenSession) -> None:
        one, two = await open_session(), await open_session()
        attempt = replace(ledger(5), creator_token=4711)
        created = await one.create_ledger(attempt)
        assert await two.create_ledger(attempt) == created
        with pytest.raises(LedgerExists):
            await two.create_ledger(replace(attempt, creator_token=4712))

    @pytest.mark.rule("API-6")
    async def test_a_repeated_creation_finds_what_became_of_the_ledger_meanwhile(self, store: MetadataStore) -> None:
        attempt = replace(ledger(5), creator_token=4711)
        created = await store.create_ledger(attempt)
        fenced = await store.write_ledger(created.metadata.with_state(LedgerState.IN_RECOVERY), created.version)
        assert await store.create_ledger(attempt) == fenced

    @pytest.mark.rule("API-6")
    async def test_every_creation_carries_a_token_of_its_own(self, store: MetadataStore) -> None:
        tokens = [(await store.create_ledger(ledger(ledger_id))).metadata.creator_token for ledger_id in range(5)]
        assert len({*tokens}) == 5
        assert all(0 < token < 2**63 for token in tokens)

    @pytest.mark.rule("API-6")
    @pytest.mark.parametrize("format_version", [1, 2])
    async def test_formats_without_a_token_never_recognise_their_own_creation(
        self, store: MetadataStore, format_version: int
    ) -> None:
        attempt = replace(
            ledger(5), format_version=format_version, creator_token=4711, digest_type=None, has_password=False
        )
        created = await store.create_ledger(attempt)
        assert created.metadata.creator_token == 0
        with pytest.raises(LedgerExists):
            await store.create_ledger(attempt)

    @pytest.mark.rule("MD-3")
    @pytest.mark.rule("W-49")
    async def test_a_ledger_that_is_not_there_is_a_final_error(self, store: MetadataStore) -> None:
        for attempt in (store.read_ledger(404), store.write_ledger(ledger(404), 0)):
            with pytest.raises(NoSuchLedger, match="ledger 404") as caught:
                await attempt
            assert not caught.value.retriable
            assert caught.value.ledger_id == 404

    @pytest.mark.rule("MD-2")
    async def test_every_write_raises_the_version(self, store: MetadataStore) -> None:
        versions = [await store.create_ledger(ledger(5))]
        versions += [await store.write_ledger(versions[0].metadata.with_state(LedgerState.IN_RECOVERY), 0)]
        versions += [await store.write_ledger(versions[1].metadata.closed(3, 40), versions[1].version)]
        assert [value.version for value in versions] == sorted({value.version for value in versions})
        assert await store.read_ledger(5) == versions[-1]
        assert versions[-1].metadata.creator_token == versions[0].metadata.creator_token

    @pytest.mark.rule("MD-3")
    @pytest.mark.rule("W-49")
    @pytest.mark.parametrize("distance", [-1, 1, 1000])
    async def test_a_write_at_another_version_is_a_conflict_and_changes_nothing(
        self, store: MetadataStore, distance: int
    ) -> None:
        created = await store.create_ledger(ledger(5))
        present = await store.write_ledger(created.metadata.with_state(LedgerState.IN_RECOVERY), created.version)
        with pytest.raises(MetadataVersionConflict, match="ledger 5") as caught:
            await store.write_ledger(present.metadata.closed(1, 1), present.version + distance)
        assert caught.value.ledger_id == 5
        assert await store.read_ledger(5) == present

    async def test_of_concurrent_writes_at_one_version_exactly_one_succeeds(self, open_session: OpenSession) -> None:
        sessions = [await open_session(), await open_session()]
        created = await sessions[0].create_ledger(ledger(5))
        attempts = [
            sessions[number % 2].write_ledger(created.metadata.closed(number, 1), created.version)
            for number in range(8)
        ]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        winners = [outcome for outcome in outcomes if isinstance(outcome, Versioned)]
        losers = [outcome for outcome in outcomes if isinstance(outcome, MetadataVersionConflict)]
        assert (len(winners), len(losers)) == (1, 7)
        assert [await session.read_ledger(5) for session in sessions] == winners * 2

    @pytest.mark.parametrize("format_version", [1, 2, 3])
    async def test_a_ledger_keeps_the_format_it_was_created_with(
        self, store: MetadataStore, format_version: int
    ) -> None:
        metadata = replace(ledger(5), format_version=format_version, digest_type=None, has_password=False)
        created = await store.create_ledger(metadata)
        closed = await store.write_ledger(created.metadata.closed(1, 2), created.version)
        assert closed.metadata.format_version == format_version
        assert (await store.read_ledger(5)).metadata.is_closed

    async def test_metadata_that_cannot_be_stored_is_refused_and_changes_nothing(self, store: MetadataStore) -> None:
        created = await store.create_ledger(ledger(5))
        for attempt in (
            store.create_ledger(ledger(6, "no/bookie")),
            store.write_ledger(ledger(5, "no/bookie"), created.version),
        ):
            with pytest.raises(MetadataSerializationError):
                await attempt
        assert await listed(store) == [5]
        assert await store.read_ledger(5) == created

    async def test_ids_that_no_ledger_can_have_are_refused(self, store: MetadataStore) -> None:
        for ledger_id in (-1, LEDGER_ID_MAX + 1):
            for attempt in (
                store.create_ledger(ledger(ledger_id)),
                store.read_ledger(ledger_id),
                store.write_ledger(ledger(ledger_id), 0),
                store.delete_ledger(ledger_id),
            ):
                with pytest.raises(ArgumentError, match=f"ledger {ledger_id}"):
                    await attempt
            with pytest.raises(ArgumentError, match=f"ledger {ledger_id}"):
                store.watch_ledger(ledger_id, print)


class TestDeletion:
    """The record is the ledger."""

    @pytest.mark.rule("DEL-1")
    async def test_a_ledger_is_deleted_whatever_its_version(self, store: MetadataStore) -> None:
        created = await store.create_ledger(ledger(5))
        await store.write_ledger(created.metadata.with_state(LedgerState.IN_RECOVERY), created.version)
        await store.delete_ledger(5)
        with pytest.raises(NoSuchLedger):
            await store.read_ledger(5)

    @pytest.mark.rule("DEL-2")
    @pytest.mark.behaviour("T-49")
    async def test_deleting_a_ledger_that_is_not_there_succeeds(self, store: MetadataStore) -> None:
        await store.delete_ledger(404)
        await store.create_ledger(ledger(5))
        await store.delete_ledger(5)
        await store.delete_ledger(5)

    @pytest.mark.rule("DEL-3")
    async def test_a_writer_of_a_deleted_ledger_learns_it_from_its_next_write(self, open_session: OpenSession) -> None:
        writer, other = await open_session(), await open_session()
        created = await writer.create_ledger(ledger(5))
        await other.delete_ledger(5)
        with pytest.raises(NoSuchLedger):
            await writer.write_ledger(created.metadata.closed(1, 1), created.version)

    async def test_an_id_can_be_used_again(self, store: MetadataStore) -> None:
        created = await store.create_ledger(ledger(5))
        await store.write_ledger(created.metadata.closed(1, 1), created.version)
        await store.delete_ledger(5)
        assert (await store.create_ledger(ledger(5))).version == 0


class TestIdsAndListing:
    """The id generator, and the directory of all ledgers."""

    async def test_no_id_is_generated_twice(self, open_session: OpenSession) -> None:
        sessions = [await open_session(), await open_session()]
        generated = await asyncio.gather(*[sessions[number % 2].generate_ledger_id() for number in range(20)])
        assert len({*generated}) == 20
        assert all(0 <= ledger_id < 2**31 - 1 for ledger_id in generated)
        for ledger_id in generated:
            await sessions[0].create_ledger(ledger(ledger_id))
        assert await listed(sessions[1]) == sorted(generated)

    @pytest.mark.rule("DEL-6")
    async def test_ledgers_are_listed_in_ascending_order(self, store: MetadataStore) -> None:
        ledger_ids = [0, 9, 9999, 10000, 10**8, 2**31 - 2, 2**31 - 1, 2**32 + 1, 10**15, LEDGER_ID_MAX]
        assert await listed(store) == []
        for ledger_id in reversed(ledger_ids):
            await store.create_ledger(ledger(ledger_id))
        assert await listed(store) == ledger_ids
        for ledger_id in ledger_ids[::2]:
            await store.delete_ledger(ledger_id)
        assert await listed(store) == ledger_ids[1::2]

    async def test_the_registry_and_the_id_generator_are_not_ledgers(self, store: MetadataStore) -> None:
        await store.register_bookie("b:1", ADDRESS)
        await store.generate_ledger_id()
        assert await listed(store) == []

    @pytest.mark.rule("DEL-6")
    async def test_ledgers_may_come_and_go_while_they_are_listed(self, store: MetadataStore) -> None:
        for ledger_id in range(5):
            await store.create_ledger(ledger(ledger_id))
        seen: list[int] = []
        async for ledger_id in store.list_ledgers():
            seen.append(ledger_id)
            if ledger_id == 1:
                for gone in (0, 3):
                    await store.delete_ledger(gone)
                await store.create_ledger(ledger(10**12))
        assert [ledger_id for ledger_id in seen if ledger_id not in {3, 10**12}] == [0, 1, 2, 4]
        assert seen == sorted(seen)

    async def test_a_listing_may_be_left_early(self, store: MetadataStore) -> None:
        for ledger_id in (1, 2):
            await store.create_ledger(ledger(ledger_id))
        listing = store.list_ledgers()
        async with aclosing(listing):  # type: ignore[type-var]
            async for ledger_id in listing:
                assert ledger_id == 1
                break


class TestLedgerWatches:
    """Readers follow the metadata of their ledger."""

    @pytest.mark.rule("NR-7")
    async def test_a_watch_reports_the_present_value_and_every_later_one(self, open_session: OpenSession) -> None:
        reader, writer = await open_session(), await open_session()
        created = await writer.create_ledger(ledger(5))
        heard: Heard[Versioned | None] = Heard()
        reader.watch_ledger(5, heard)
        assert heard.values == []
        assert await heard.last(created) == [created]
        changed = await writer.write_ledger(created.metadata.with_ensemble(7, ("x:1", "y:1", "z:1")), created.version)
        await heard.last(changed)
        closed = await writer.write_ledger(changed.metadata.closed(8, 90), changed.version)
        assert await heard.last(closed) == [created, changed, closed]

    @pytest.mark.rule("NR-7")
    async def test_quick_changes_are_reported_in_order_up_to_the_last(self, open_session: OpenSession) -> None:
        reader, writer = await open_session(), await open_session()
        value = await writer.create_ledger(ledger(5))
        heard: Heard[Versioned | None] = Heard()
        reader.watch_ledger(5, heard)
        for first_entry in range(1, 20):
            changed = value.metadata.with_ensemble(first_entry, ("x:1", "y:1", f"z:{first_entry}"))
            value = await writer.write_ledger(changed, value.version)
        versions = [value.version for value in await heard.last(value) if value is not None]
        assert versions == sorted({*versions})

    @pytest.mark.rule("NR-7")
    async def test_a_deletion_is_reported_as_nothing_and_a_later_ledger_as_itself(
        self, open_session: OpenSession
    ) -> None:
        reader, writer = await open_session(), await open_session()
        heard: Heard[Versioned | None] = Heard()
        reader.watch_ledger(5, heard)
        assert await heard.last(None) == [None]
        created = await writer.create_ledger(ledger(5))
        await heard.last(created)
        await writer.delete_ledger(5)
        assert await heard.last(None) == [None, created, None]
        again = await writer.create_ledger(ledger(5))
        assert await heard.last(again) == [None, created, None, again]

    async def test_a_cancelled_watch_is_silent_and_the_others_go_on(self, store: MetadataStore) -> None:
        created = await store.create_ledger(ledger(5))
        left: Heard[Versioned | None] = Heard()
        stays: Heard[Versioned | None] = Heard()
        never: Heard[Versioned | None] = Heard()
        cancel = store.watch_ledger(5, left)
        store.watch_ledger(5, stays)
        store.watch_ledger(5, never)()
        await stays.last(created)
        await left.last(created)
        cancel()
        cancel()
        closed = await store.write_ledger(created.metadata.closed(1, 1), created.version)
        await stays.last(closed)
        assert (left.values, never.values) == ([created], [])

    async def test_a_watch_that_begins_later_gets_the_present_value_too(self, store: MetadataStore) -> None:
        created = await store.create_ledger(ledger(5))
        early: Heard[Versioned | None] = Heard()
        store.watch_ledger(5, early)
        await early.last(created)
        late: Heard[Versioned | None] = Heard()
        store.watch_ledger(5, late)
        await late.last(created)
        closed = await store.write_ledger(created.metadata.closed(1, 1), created.version)
        assert await early.last(closed) == await late.last(closed) == [created, closed]

    async def test_a_listener_may_cancel_itself(self, store: MetadataStore) -> None:
        created = await store.create_ledger(ledger(5))
        once: Heard[Versioned | None] = Heard()
        always: Heard[Versioned | None] = Heard()

        def listener(value: Versioned | None) -> None:
            cancel()
            once(value)

        cancel = store.watch_ledger(5, listener)
        store.watch_ledger(5, always)
        await once.last(created)
        closed = await store.write_ledger(created.metadata.closed(1, 1), created.version)
        await always.last(closed)
        assert once.values == [created]

    async def test_a_listener_that_raises_harms_nobody_else(self, store: MetadataStore) -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["exception"]))
        error = ZeroDivisionError()

        def listener(value: Versioned | None) -> None:
            raise error

        created = await store.create_ledger(ledger(5))
        store.watch_ledger(5, listener)
        heard: Heard[Versioned | None] = Heard()
        store.watch_ledger(5, heard)
        await heard.last(created)
        closed = await store.write_ledger(created.metadata.closed(1, 1), created.version)
        await heard.last(closed)
        assert complaints == [error, error]

    async def test_the_listeners_of_a_closed_session_are_silent(self, open_session: OpenSession) -> None:
        reader, writer = await open_session(), await open_session()
        created = await writer.create_ledger(ledger(5))
        heard: Heard[Versioned | None] = Heard()
        cancel = reader.watch_ledger(5, heard)
        await heard.last(created)
        await reader.aclose()
        other: Heard[Versioned | None] = Heard()
        writer.watch_ledger(5, other)
        closed = await writer.write_ledger(created.metadata.closed(1, 1), created.version)
        await other.last(closed)
        assert heard.values == [created]
        cancel()


class TestRegistry:
    """Which bookies are alive, and where."""

    async def test_bookies_are_listed_by_kind_and_sorted(self, open_session: OpenSession) -> None:
        bookies, client = await open_session(), await open_session()
        assert await client.bookies() == BookieSets()
        for bookie_id in ("c:1", "a:1", "b:1"):
            await bookies.register_bookie(bookie_id, ADDRESS)
        await bookies.register_bookie("d:1", ADDRESS, read_only=True)
        assert await client.bookies() == BookieSets(("a:1", "b:1", "c:1"), ("d:1",))

    async def test_a_bookie_moves_between_writable_and_read_only(self, store: MetadataStore) -> None:
        for read_only in (False, True, True, False, False):
            await store.register_bookie("a:1", ADDRESS, read_only=read_only)
            expected = BookieSets((), ("a:1",)) if read_only else BookieSets(("a:1",), ())
            assert await store.bookies() == expected

    async def test_a_bookie_disappears_when_it_is_withdrawn(self, store: MetadataStore) -> None:
        await store.unregister_bookie("a:1")
        for read_only in (False, True):
            await store.register_bookie("a:1", ADDRESS, read_only=read_only)
            await store.unregister_bookie("a:1")
            await store.unregister_bookie("a:1")
            assert await store.bookies() == BookieSets()

    async def test_bookies_disappear_with_their_session(self, open_session: OpenSession) -> None:
        gone, stays, client = await open_session(), await open_session(), await open_session()
        await gone.register_bookie("a:1", ADDRESS)
        await gone.register_bookie("b:1", ADDRESS, read_only=True)
        await stays.register_bookie("c:1", ADDRESS)
        await gone.aclose()
        await gone.aclose()
        assert await client.bookies() == BookieSets(("c:1",), ())
        with pytest.raises(ClientClosed):
            await gone.bookies()

    async def test_an_address_need_not_be_the_id(self, open_session: OpenSession) -> None:
        bookies, client = await open_session(), await open_session()
        await bookies.register_bookie("name-1", ADDRESS)
        await bookies.register_bookie("10.0.0.1:1", OTHER_ADDRESS, read_only=True)
        assert await client.bookie_address("name-1") == ADDRESS
        assert await client.bookie_address("10.0.0.1:1") == OTHER_ADDRESS

    async def test_a_bookie_that_comes_back_elsewhere_is_found_there(self, open_session: OpenSession) -> None:
        bookies, client = await open_session(), await open_session()
        await bookies.register_bookie("name-1", ADDRESS)
        assert await client.bookie_address("name-1") == ADDRESS
        await bookies.register_bookie("name-1", OTHER_ADDRESS)
        assert await client.bookie_address("name-1") == OTHER_ADDRESS
        await bookies.register_bookie("name-1", ADDRESS, read_only=True)
        assert await client.bookie_address("name-1") == ADDRESS

    async def test_the_last_address_of_a_bookie_that_is_gone_is_remembered(self, open_session: OpenSession) -> None:
        bookies, client = await open_session(), await open_session()
        await bookies.register_bookie("name-1", ADDRESS)
        assert await client.bookie_address("name-1") == ADDRESS
        await bookies.aclose()
        assert await client.bookie_address("name-1") == ADDRESS

    async def test_a_bookie_that_was_never_seen_is_not_available(self, store: MetadataStore) -> None:
        with pytest.raises(BookieNotAvailable, match="bookie a:1"):
            await store.bookie_address("a:1")

    @pytest.mark.parametrize("bookie_id", ["", "a/b", "readonly", ".."])
    async def test_an_id_that_is_not_valid_is_refused(self, store: MetadataStore, bookie_id: str) -> None:
        for attempt in (
            store.register_bookie(bookie_id, ADDRESS),
            store.unregister_bookie(bookie_id),
            store.bookie_address(bookie_id),
        ):
            with pytest.raises(ArgumentError, match="not a valid bookie id"):
                await attempt

    @pytest.mark.rule("PL-1")
    async def test_a_watch_reports_the_present_sets_and_every_change(self, open_session: OpenSession) -> None:
        bookies, client = await open_session(), await open_session()
        await bookies.register_bookie("a:1", ADDRESS)
        heard: Heard[BookieSets] = Heard()
        client.watch_bookies(heard)
        assert heard.values == []
        await heard.last(BookieSets(("a:1",), ()))
        await bookies.register_bookie("b:1", ADDRESS)
        await heard.last(BookieSets(("a:1", "b:1"), ()))
        await bookies.register_bookie("a:1", ADDRESS, read_only=True)
        await heard.last(BookieSets(("b:1",), ("a:1",)))
        await bookies.register_bookie("a:1", ADDRESS)
        await heard.last(BookieSets(("a:1", "b:1"), ()))
        await bookies.aclose()
        values = await heard.last(BookieSets())
        assert all(before != after for before, after in itertools.pairwise(values))

    @pytest.mark.rule("PL-1")
    async def test_what_does_not_change_the_sets_is_not_reported(self, store: MetadataStore) -> None:
        heard: Heard[BookieSets] = Heard()
        store.watch_bookies(heard)
        await heard.last(BookieSets())
        await store.register_bookie("a:1", ADDRESS)
        await heard.last(BookieSets(("a:1",), ()))
        await store.register_bookie("a:1", OTHER_ADDRESS)
        await store.unregister_bookie("z:1")
        await store.register_bookie("b:1", ADDRESS)
        values = await heard.last(BookieSets(("a:1", "b:1"), ()))
        assert values == [BookieSets(), BookieSets(("a:1",), ()), BookieSets(("a:1", "b:1"), ())]

    @pytest.mark.rule("PL-1")
    async def test_a_bookie_is_never_reported_in_both_sets(self, open_session: OpenSession) -> None:
        bookies, client = await open_session(), await open_session()
        heard: Heard[BookieSets] = Heard()
        client.watch_bookies(heard)
        for read_only in (False, True) * 5:
            await bookies.register_bookie("a:1", ADDRESS, read_only=read_only)
        for sets in await heard.last(BookieSets((), ("a:1",))):
            assert not {*sets.writable} & {*sets.read_only}

    @pytest.mark.rule("PL-1")
    async def test_a_cancelled_watch_of_the_bookies_is_silent(self, store: MetadataStore) -> None:
        left: Heard[BookieSets] = Heard()
        stays: Heard[BookieSets] = Heard()
        cancel = store.watch_bookies(left)
        store.watch_bookies(stays)
        await left.last(BookieSets())
        cancel()
        cancel()
        await store.register_bookie("a:1", ADDRESS)
        await stays.last(BookieSets(("a:1",), ()))
        assert left.values == [BookieSets()]

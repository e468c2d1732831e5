"""Compaction by key, in virtual time and cancelled wherever it waits."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bkclient.errors import ArgumentError, DigestMismatch, MetadataVersionConflict, NoSuchLedger, TooManyRequests
from bkclient.log import CompactedLedger, LogMessage, Logs, LogSettings, LogTrimmed, MessageId, PublishSettings
from bkclient.log.format.compression import Compression
from bkclient.log.format.entry import decode_compacted, decode_entry, encode_compacted
from bkclient.log.machine.codec import decode_manifest, encode_manifest
from bkclient.log.machine.compacting import BeginCompaction, FinishCompaction
from bkclient.log.machine.manifest import LogManifest
from simbookie.world.metadata_service import MetadataFault
from tests.bkclient.fakes import fake_cluster
from tests.bkclient.log.test_logs import run
from tests.bkclient.virtual_cluster import VirtualCluster
from tests.cancellation import Cancel, cancel_everywhere

SMALL = LogSettings(max_ledger_entries=2, min_ledger_s=0)
Written = list[tuple[str, str]]


async def publish(logs: Logs, *texts: str, name: str = "log", **settings: Any) -> list[MessageId]:
    """Publish texts such as "k=v", one after the other."""
    async with logs.writer(name, settings=PublishSettings(**settings)) as log:
        futures = []
        for text in texts:
            key, _, value = text.partition("=")
            futures.append(log.publish_nowait(value.encode(), key=key or None))
        await log.flush()
        return [future.result() for future in futures]


async def content(logs: Logs, name: str = "log", **options: Any) -> list[LogMessage]:
    async with logs.reader(name, follow=False, **options) as reader:
        return [message async for message in reader]


async def view(logs: Logs, name: str = "log", **options: Any) -> list[str]:
    """What a compacted reader finds."""
    found = await content(logs, name, compacted=True, **options)
    return [f"{message.key}={message.payload.decode()}" for message in found]


def newest(messages: list[LogMessage]) -> dict[str, str]:
    """What a reader of everything ends up with."""
    found: dict[str, str] = {}
    for message in messages:
        if message.key is not None:
            found.pop(message.key, None)
            if message.payload:
                found[message.key] = message.payload.decode()
    return found


def test_the_newest_message_of_each_key_is_kept_under_its_id() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        assert await logs.compact("log") == 0
        ids = await publish(logs, "a=1", "b=1", "a=2", "=none", "c=1", "b=", "c=2", batch_messages=2)
        before = await content(logs)
        assert await logs.compact("log", compression="zlib") == 2
        found = await content(logs, compacted=True)
        assert [message.id for message in found] == [ids[2], ids[6]]
        assert found == [message for message in before if message.id in (ids[2], ids[6])], (
            "with everything that they had"
        )
        assert await content(logs) == before, "the log itself is as it was"
        await publish(logs, "a=3", "d=1")
        assert await view(logs) == ["a=2", "c=2", "a=3", "d=1"]
        assert await logs.compact("log") == 3
        assert await view(logs) == ["c=2", "a=3", "d=1"]
        assert await view(logs, start=ids[6], inclusive=False) == ["a=3", "d=1"]
        assert await view(logs, start=ids[6]) == ["c=2", "a=3", "d=1"]
        assert await view(logs, start=MessageId.LATEST) == []
        compacted = (await logs.info("log")).compacted
        assert await logs.compact("log") == 3
        assert (await logs.info("log")).compacted == compacted, "there was nothing new"

    run(story, settings=SMALL)


def test_a_random_log_compacted_now_and_then_ends_as_if_everything_was_read() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        rng = Random(5)
        for _ in range(6):
            texts = [f"k{rng.randrange(6)}={rng.choice(['', str(rng.random())])}" for _ in range(rng.randrange(1, 12))]
            await publish(logs, *texts, batch_messages=rng.randrange(1, 4))
            expected = newest(await content(logs))
            if rng.random() < 0.7:
                assert await logs.compact("log") == len(expected)
            assert newest(await content(logs, compacted=True)) == expected
        manifest = await logs.info("log")
        assert manifest.compacted is not None
        known = {ledger.ledger_id for ledger in manifest.ledgers} | {manifest.compacted.ledger_id}
        async with cluster.client("other") as other:
            assert {ledger_id async for ledger_id in other.list_ledgers()} == known, "the ones before are deleted"
        assert [report.is_sound async for report in logs.check("log")] == [True] * len(known)

    run(story, settings=SMALL)


def test_a_follower_goes_on_behind_what_is_compacted_and_partitions_are_compacted_each() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", partitions=2)
        await publish(logs, *(f"k{number % 4}={number}" for number in range(12)), name="many", batch_messages=1)
        assert await logs.compact("many") == 4
        async with logs.reader("many", compacted=True) as reader:
            assert {(await anext(reader)).payload for _ in range(4)} == {b"8", b"9", b"10", b"11"}
            async with logs.writer("many") as log:
                new = await log.publish(b"new", key="k1")
                message = await anext(reader)
                assert (message.id, message.payload) == (new, b"new")

    run(story)


def test_trimming_takes_only_what_is_compacted_and_a_reader_finds_the_rest() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        ids = await publish(logs, "a=1", "b=1", "a=2", "c=1", batch_messages=1)
        await logs.compact("log")
        more = await publish(logs, "a=3", "d=1", batch_messages=1)
        assert await logs.trim("log", MessageId(10**9, 0)) == sorted({each.ledger_id for each in ids})
        assert await view(logs) == ["b=1", "a=2", "c=1", "a=3", "d=1"]
        assert await view(logs, start=ids[1]) == ["b=1", "a=2", "c=1", "a=3", "d=1"]
        with pytest.raises(LogTrimmed):
            await content(logs, start=ids[1])
        async with logs.reader("log", compacted=True, follow=False) as slow:
            assert (await anext(slow)).payload == b"1"
            assert await logs.compact("log") == 4
            assert await logs.trim("log", MessageId(10**9, 0)) == [more[0].ledger_id]
            rest = [f"{message.key}={message.payload.decode()}" async for message in slow]
        assert rest[-2:] == ["a=3", "d=1"]
        assert newest(await content(logs, compacted=True)) == {"a": "3", "b": "1", "c": "1", "d": "1"}

    run(story, settings=SMALL)


# Two at a time, and death --------------------------------------------------------------------------------------------


async def race(cluster: VirtualCluster, logs: Logs) -> None:
    """A compaction is overtaken by another while the last write of it is on its way."""
    await publish(logs, "a=1", "b=1", "a=2")
    writes = 0

    def is_last(call: Any) -> bool:
        nonlocal writes
        writes += call.host == "slow" and call.operation == "tree_write"
        return bool(call.host == "slow" and call.operation == "tree_write" and writes == 2)

    async with cluster.client("slow") as client:
        hold = cluster.world.metadata.intercept(is_last, MetadataFault.HOLD, limit=1)
        slow = asyncio.create_task(Logs(client, rng=Random(2)).compact("log"))
        await asyncio.sleep(1)
        await publish(logs, "b=2")
        assert await logs.compact("log") == 2
        hold.release()
        with pytest.raises(MetadataVersionConflict, match="another compaction"):
            await slow
    assert await view(logs) == ["a=2", "b=2"]


def test_of_two_compactions_the_one_that_began_last_counts() -> None:
    run(race)


def _finished_by_anybody(self: FinishCompaction, manifest: LogManifest) -> LogManifest:
    """The planted defect: a compaction that another one dropped is pointed to."""
    return replace(manifest, compacted=self.compacted, compacting=-1)


def test_a_compaction_that_does_not_ask_whether_it_still_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FinishCompaction, "applied", _finished_by_anybody)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run(race)


def test_a_compaction_that_dies_anywhere_leaves_the_log_as_it_was_and_is_cleaned_up() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            logs = Logs(where.bk, rng=Random(1))
            await logs.create("log", LogSettings(max_ledger_entries=2, min_ledger_s=0))
            await publish(logs, "a=1", "b=1", "a=2")
            await logs.compact("log")
            await publish(logs, "b=2", "c=1")
            await cancel(logs.compact("log"))
            assert newest(await content(logs, compacted=True)) == {"a": "2", "b": "2", "c": "1"}
            await publish(logs, "c=2")
            assert await logs.compact("log") == 3
            assert await view(logs) == ["a=2", "b=2", "c=2"]
            manifest = await logs.info("log")
            assert (manifest.compacting, manifest.dropped) == (-1, ())
            assert manifest.compacted is not None
            known = {ledger.ledger_id for ledger in manifest.ledgers} | {manifest.compacted.ledger_id}
            left = [ledger_id async for ledger_id in where.bk.list_ledgers() if ledger_id not in known]
            for ledger_id in left:  # one that was created and not announced, which nothing was written to
                async with await where.bk.open_ledger(ledger_id, recover=True) as reader:
                    assert reader.last_add_confirmed == -1
            await logs.delete("log")
            assert {ledger_id async for ledger_id in where.bk.list_ledgers()} == set(left)

    assert cancel_everywhere(story, at_least=5) >= 5


def _drops_what_is_read(self: BeginCompaction, manifest: LogManifest) -> LogManifest:
    """The planted defect: the ledger of the last compaction goes before the new one is whole."""
    assert manifest.compacted is not None
    return replace(manifest, compacting=self.ledger_id, dropped=(manifest.compacted.ledger_id,))


def test_a_compaction_that_deletes_the_last_one_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        await publish(logs, "a=1")
        await logs.compact("log")
        await publish(logs, "b=1")
        monkeypatch.setattr(BeginCompaction, "applied", _drops_what_is_read)
        with pytest.raises(NoSuchLedger):
            await logs.compact("log")

    run(story)


@pytest.mark.parametrize("fault", [MetadataFault.ANSWER_LOST, MetadataFault.CALL_LOST])
def test_every_write_of_a_compaction_may_lose_its_answer(fault: MetadataFault) -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        for skipped in range(3):
            await publish(logs, "a=1", f"b={skipped}")
            seen = 0

            def is_that(call: Any, skipped: int = skipped) -> bool:
                nonlocal seen
                seen += call.operation == "tree_write"
                return bool(call.operation == "tree_write" and seen == skipped + 1)

            cluster.world.metadata.intercept(is_that, fault, limit=1)
            assert await logs.compact("log") == 2
            assert await view(logs) == ["a=1", f"b={skipped}"]
            assert (await logs.info("log")).dropped == ()

    run(story)


def test_a_compaction_that_was_overtaken_does_not_take_back_what_another_one_covers() -> None:
    """The log was trimmed by the other one's horizon, in the ledger in whose midst the slow one has its own."""

    def is_write_of_slow(call: Any) -> bool:
        return bool(call.host == "slow" and call.operation == "tree_write")

    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with cluster.client("slow") as client, logs.writer("log") as log:
            await log.publish(b"1", key="a")
            await asyncio.sleep(1)  # bookies learn that it is confirmed
            hold = cluster.world.metadata.intercept(is_write_of_slow, MetadataFault.HOLD, limit=1)
            slow = asyncio.create_task(Logs(client, rng=Random(2)).compact("log"))
            await asyncio.sleep(1)
            await log.publish(b"2", key="a")
            await log.aclose()
            assert await logs.compact("log") == 1
            hold.release()
            hold = cluster.world.metadata.intercept(is_write_of_slow, MetadataFault.HOLD, limit=2)
            await asyncio.sleep(1)
            assert len(await logs.trim("log", MessageId(10**9, 0))) == 1
            hold.release()
            with pytest.raises(MetadataVersionConflict, match="compacted meanwhile"):
                await slow
        assert await view(logs) == ["a=2"]
        manifest = await logs.info("log")
        assert manifest.compacted is not None
        async with cluster.client("other") as other:
            left = [ledger_id async for ledger_id in other.list_ledgers()]
        assert left == [manifest.compacted.ledger_id], "the one that the slow one had made is deleted"

    run(story)


def test_a_reader_whose_compaction_covers_what_is_trimmed_in_front_of_it_goes_on() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        await publish(logs, "a=1", "b=1")
        await logs.compact("log")
        async with logs.reader("log", compacted=True) as reader:
            assert (await anext(reader)).key == "a"
            assert (await anext(reader)).key == "b"
            assert len(await logs.trim("log", MessageId(10**9, 0))) == 1
            new = await publish(logs, "a=2")
            assert (await anext(reader)).id == new[0]

    run(story)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_reader_that_is_left_while_it_looks_for_its_place_leaves_nothing(number: int) -> None:
    """It looks at the log for the next ledger, for a newer compaction, and for where to go on."""

    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        await publish(logs, "a=1", "b=1")
        await logs.compact("log")
        before = cluster.world.metadata.memory.snapshot().node_watches
        async with logs.reader("log", compacted=True) as reader:
            assert len([await anext(reader), await anext(reader)]) == 2
            await logs.trim("log", MessageId(10**9, 0))
            looks = itertools.count(1)
            held = cluster.world.metadata.intercept(
                lambda call: call.operation == "tree_get" and next(looks) == number, MetadataFault.HOLD, limit=1
            )
            waiting = asyncio.ensure_future(reader.next_batch())
            await asyncio.sleep(0.1)
            assert next(looks) == number + 1
        held.release()
        assert await waiting == []
        await asyncio.sleep(1)
        assert cluster.world.metadata.memory.snapshot().node_watches == before

    run(story)


def test_a_log_whose_last_ledger_has_no_entry_yet_is_compacted_and_read_to_its_end() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log") as log:
            for text in ("1", "2", "3"):  # two in a ledger that has ended; of the third bookies do not tell at once
                await log.publish(text.encode(), key="a")
            assert await logs.compact("log") == 1
            async with asyncio.timeout(1):
                assert await view(logs) == ["a=2"]
                assert [message.payload for message in await content(logs)] == [b"1", b"2"]

    run(story, settings=SMALL)


# Limits and formats --------------------------------------------------------------------------------------------------


def test_what_is_too_much_or_wrong_is_refused() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        await publish(logs, "a=1", "b=1", "c=1")
        with pytest.raises(TooManyRequests, match="more than 2 keys"):
            await logs.compact("log", max_keys=2)
        assert (await logs.info("log")).compacting == -1
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"max_keys": 0}, "max_keys must be"),
            ({"max_keys": True}, "max_keys must be"),
            ({"compression": "rar"}, "compression must be one of"),
        ]
        for options, match in wrong:
            with pytest.raises(ArgumentError, match=match):
                await logs.compact("log", **options)
        with pytest.raises(ArgumentError, match="mutually exclusive"):
            logs.reader("log", start_ms=1, compacted=True)

    run(story)


def test_entries_and_manifests_of_compactions_are_read_as_they_were_written() -> None:
    first = LogMessage(MessageId(3, 4, 1, 2), b"x", "k", {"h": b"v"}, 5, 6, 7)
    second = LogMessage(MessageId(3, 9, 1), b"y", "l", {}, None, 8)
    data = encode_compacted([first, second], Compression.NONE)
    assert decode_compacted(data, 50, 0, 1) == [first, second]
    assert data[0] == 2
    with pytest.raises(DigestMismatch, match="format 2"):
        decode_entry(data, 50, 0)
    for damaged in (data[:-1], b"\x01" + data[1:], data[:18] + b"\x92" + bytes(len(data) - 19)):
        with pytest.raises(DigestMismatch):
            decode_compacted(damaged, 50, 0)
    manifest = LogManifest("a", compacted=CompactedLedger(5, 3, 9, 2), compacting=7, dropped=(1, 2))
    assert decode_manifest(encode_manifest(manifest)) == manifest
    with pytest.raises(ValueError, match="ledger ids"):
        replace(manifest, compacting=-2)
    with pytest.raises(ValueError, match="ledger ids"):
        replace(manifest, dropped=(-1,))

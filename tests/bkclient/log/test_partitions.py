"""Logs with partitions, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from bkclient.errors import ArgumentError, BookKeeperError, IllegalOperation
from bkclient.log import (
    LogDeposed,
    LogExists,
    LogMessage,
    Logs,
    LogSettings,
    LogWriter,
    MessageId,
    NoSuchLog,
    PublishSettings,
)
from bkclient.log.machine.changes import ClaimLog
from bkclient.log.machine.codec import decode_manifest, encode_manifest
from bkclient.log.machine.cursor import decode_cursor
from bkclient.log.machine.manifest import LogManifest
from bkclient.log.partitioning import PartitionRouter, key_hash, starts_of
from simbookie.world.faults import Delay
from tests.bkclient.log.test_logs import run
from tests.bkclient.virtual_cluster import VirtualCluster

SMALL = LogSettings(max_ledger_entries=2, min_ledger_s=0)
ONE_BY_ONE = PublishSettings(batch_messages=1)


async def content(logs: Logs, name: str = "many", **options: object) -> list[LogMessage]:
    async with logs.reader(name, follow=False, **options) as reader:  # type: ignore[arg-type]
        return [message async for message in reader]


def by_partition(messages: list[LogMessage]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for message in messages:
        found.setdefault(message.id.partition, []).append(message.payload.decode())
    return found


# Which partition -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("k1", 2110152746),
        ("k2", 1479966664),
        ("key1", 462881061),
        ("key2", 1936800180),
        ("key01", 39696932),
        ("key02", 751761803),
        ("", 0),
    ],
)
def test_keys_are_hashed_as_by_clients_of_pulsar(key: str, hashed: int) -> None:
    """The numbers are those of the tests of Pulsar's Java and C++ clients; seeds 0, 32 bits, without the sign."""
    assert key_hash(key) == hashed


def test_long_keys_and_other_alphabets_are_hashed_by_their_bytes() -> None:
    assert len({key_hash("x" * length) for length in range(1, 50)}) == 49
    assert all(0 <= key_hash(chr(0x4E00 + number) * 3) < 2**31 for number in range(100))
    spread = Counter(key_hash(f"customer-{number}") % 4 for number in range(4000))
    assert all(900 < count < 1100 for count in spread.values())


def test_messages_without_a_key_go_by_turns_a_batch_at_a_time() -> None:
    gathered = [0, 0, 0]
    router = PartitionRouter(3, lambda number: gathered[number] == 0)
    chosen = []
    for _ in range(12):
        partition = router.choose(None)
        gathered[partition] = (gathered[partition] + 1) % 2  # batches of two
        chosen.append(partition)
    assert chosen == [0, 0, 1, 1, 2, 2] * 2
    assert router.choose("k1") == 2110152746 % 3


def test_where_reading_begins() -> None:
    first, second = MessageId(1, 2, 0), MessageId(3, 4, 1)
    assert starts_of(MessageId.LATEST, 2) == [MessageId.LATEST] * 2
    assert starts_of([second], 2) == [MessageId.EARLIEST, second]
    assert starts_of([first, second], 2) == [first, second]
    assert starts_of(first, 0) == [first]
    for wrong, partitions in (([first, second], 0), (MessageId(1, 2), 2), (second, 1), ([first, first], 2)):
        with pytest.raises(ArgumentError, match="start must"):
            starts_of(wrong, partitions)


# Publishing and reading ----------------------------------------------------------------------------------------------


def test_messages_are_spread_and_each_partition_keeps_its_order() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", SMALL, partitions=3)
        async with logs.writer("many", settings=ONE_BY_ONE) as log:
            ids = [await log.publish(b"%d" % number) for number in range(6)]
            keyed = [await log.publish(b"k%d" % number, key="k1") for number in range(3)]
            assert log.pending_messages == 0
        assert [each.partition for each in ids] == [0, 1, 2, 0, 1, 2]
        assert {each.partition for each in keyed} == {2110152746 % 3}
        found = await content(logs)
        assert sorted(message.id for message in found) == sorted([*ids, *keyed])
        assert by_partition(found) == {0: ["0", "3"], 1: ["1", "4"], 2: ["2", "5", "k0", "k1", "k2"]}
        alone = await content(logs, "many-partition-1")
        assert [(message.id, message.payload) for message in alone] == [(ids[1], b"1"), (ids[4], b"4")]
        assert (await logs.info("many")).partitions == 3
        assert [name async for name in logs.names()] == ["log", "many"]
        assert await logs.partitions("many") == [f"many-partition-{number}" for number in range(3)]
        assert await logs.partitions("log") == ["log"]

    run(story)


def test_batches_are_those_of_a_partition() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", partitions=2)
        async with logs.writer("many", settings=PublishSettings(batch_messages=3)) as log:
            futures = [log.publish_nowait(b"%d" % number) for number in range(8)]
            await log.flush()
            places = [(each.result().partition, each.result().batch_index) for each in futures]
        assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 0), (0, 1)]

    run(story)


def test_a_reader_follows_all_partitions_and_begins_where_it_is_told() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", SMALL, partitions=3)
        async with logs.writer("many", settings=ONE_BY_ONE) as log, logs.reader("many") as reader:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(20):
                    await anext(reader)
            ids = [await log.publish(b"%d" % number) for number in range(12)]
            found = [await anext(reader) for _ in range(12)]
            assert sorted(message.id for message in found) == sorted(ids)
            assert all(part == sorted(part, key=int) for part in by_partition(found).values())
        rest = await content(logs, start=[ids[9], ids[7]], inclusive=False)
        assert by_partition(rest) == {1: ["10"], 2: ["2", "5", "8", "11"]}
        assert await content(logs, start=MessageId.LATEST) == []
        assert len(await content(logs, start_ms=0)) == 12

    run(story)


def test_a_cursor_has_a_position_in_each_partition() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", SMALL, partitions=2)
        async with logs.writer("many", settings=ONE_BY_ONE) as log:
            ids = [await log.publish(b"%d" % number) for number in range(8)]
        async with logs.cursor("many", "billing") as cursor:
            messages = {message.id: message for message in [await anext(cursor) for _ in range(8)]}
            for number in (0, 2, 4, 1, 5):
                cursor.acknowledge(messages[ids[number]])
            with pytest.raises(IllegalOperation, match="each partition"):
                str(cursor.position)
        cursor = await logs.cursor("many", "billing").__aenter__()
        left = [await anext(cursor) for _ in range(3)]
        assert {message.id for message in left} == {ids[3], ids[6], ids[7]}
        assert await cursor.backlog_entries() == 3
        assert [each.partition for each in cursor.positions] == [0, 1]
        infos = await logs.cursors("many")
        assert [(info.name, info.position.partition, info.backlog_entries) for info in infos] == [
            ("billing", 0, 1),
            ("billing", 1, 2),
        ]
        assert await logs.trim("many", MessageId(10**6, 0, 0)) == [ids[0].ledger_id]
        async with logs.cursor("many", "billing") as thief:
            cursor.acknowledge(left[0])
            assert thief.holes == 1
            with pytest.raises(LogDeposed):
                await cursor.__aexit__(None, None, None)
        await logs.remove_cursor("many", "billing")
        assert await logs.cursors("many") == []

    run(story)


# One owner -----------------------------------------------------------------------------------------------------------


def test_the_owner_that_claims_later_gets_all_partitions_whatever_the_order_of_their_claims() -> None:
    """An owner that was overtaken while it claimed can take no partition back: the epoch of the log decides."""
    manifest = LogManifest("id", epoch=3, partition=0)
    claimed = ClaimLog("late", "b", 5).applied(manifest)
    assert (claimed.epoch, claimed.owner) == (5, "late")
    with pytest.raises(LogDeposed, match="'late', in epoch 5"):
        ClaimLog("early", "a", 4).applied(claimed)
    with pytest.raises(IllegalOperation, match="partition 0"):
        ClaimLog("alone", "c").applied(claimed)


@dataclass
class Race:
    """What became of owners that claim a log with partitions at about the same time."""

    acknowledged: list[tuple[MessageId, str]] = field(default_factory=list)
    found: list[LogMessage] = field(default_factory=list)
    owners_of_all: int = 0

    def broken(self) -> list[str]:
        texts = {message.id: message.payload.decode() for message in self.found}
        broken = []
        if not len(texts) == len(self.found) == len(set(texts.values())):
            broken.append("a message is there twice")
        broken += [f"{text} was lost" for place, text in self.acknowledged if texts.get(place) != text]
        for part in by_partition(self.found).values():
            for name in "abc":
                own = [int(text[1:]) for text in part if text.startswith(name)]
                if own != sorted(own):
                    broken.append("out of order")
        if not self.owners_of_all:
            broken.append("nobody got all partitions")
        return broken


async def publish_as(cluster: VirtualCluster, name: str, race: Race) -> None:
    async with cluster.client(name) as client:
        try:
            async with Logs(client, rng=Random(name)).writer("many", settings=ONE_BY_ONE, owner=name) as log:
                for number in range(8):
                    text = f"{name}{number}"
                    race.acknowledged.append((await log.publish(text.encode(), key=str(number % 4)), text))
                    await asyncio.sleep(0.01)
            race.owners_of_all += 1
        except LogDeposed:
            return


def raced(seed: int) -> Race:
    rng, race = Random(seed), Race()

    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", SMALL, partitions=3)
        cluster.world.metadata.intercept(
            lambda call: call.operation == "tree_write" and rng.random() < 0.4, Delay(0.01), limit=8
        )
        async with asyncio.TaskGroup() as tasks:
            for name in "abc":
                tasks.create_task(publish_as(cluster, name, race))
                await asyncio.sleep(rng.choice([0, 0.0005, 0.001, 0.002, 0.003, 0.05]))
        race.found += await content(logs)

    run(story)
    return race


def test_owners_that_race_leave_one_owner_of_all_partitions_and_lose_nothing() -> None:
    for seed in range(4):
        assert raced(seed).broken() == []


def _claims_of_any_epoch(self: ClaimLog, manifest: LogManifest) -> LogManifest:
    """The planted defect: who comes last to a partition gets it."""
    return replace(manifest, epoch=manifest.epoch + 1, owner=self.owner, claim_id=self.claim_id)


def test_the_race_finds_owners_that_ignore_the_epoch_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClaimLog, "applied", _claims_of_any_epoch)
    assert any("nobody got all partitions" in raced(seed).broken() for seed in range(12))


def test_taking_over_may_be_cancelled_at_any_time() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", SMALL, partitions=2)
        outcomes = set()
        for step in range(16):
            second = logs.writer("many")
            try:
                async with asyncio.timeout(0.002 * step):
                    await second.__aenter__()
            except TimeoutError:
                outcomes.add("cancelled")
            else:
                outcomes.add("entered")
                await second.aclose()
            async with logs.writer("many") as log:
                for key in ("k1", "k2", "a"):
                    await log.publish(b"%d" % step, key=key)
        assert outcomes == {"cancelled", "entered"}
        assert sorted(int(message.payload) for message in await content(logs)) == [
            each for each in range(16) for _ in "123"
        ]
        assert (await logs.info("many")).owner == ""

    run(story)


def test_an_owner_is_deposed_in_all_partitions_at_once() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", partitions=3)
        old = await logs.writer("many").__aenter__()
        await old.publish(b"0", key="k1")
        async with cluster.client("other") as other, Logs(other, rng=Random(2)).writer("many") as log:
            await asyncio.sleep(1)
            assert old.is_closed
            for key in ("k1", "k2", "key1"):
                with pytest.raises(LogDeposed):
                    await old.publish(b"1", key=key)
            await log.publish(b"2", key="k1")
        with pytest.raises(LogDeposed):
            await old.aclose()
        assert [message.payload for message in await content(logs)] == [b"0", b"2"]

    run(story)


def test_what_one_partition_cannot_store_ends_the_writer() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", partitions=2)
        async with cluster.client("other") as other:
            log: LogWriter = await logs.writer("many", settings=ONE_BY_ONE).__aenter__()
            first = await log.publish(b"0")
            async with await other.open_ledger(first.ledger_id, recover=True):
                pass
            await other.delete_ledger(first.ledger_id)
            futures = [log.publish_nowait(b"1") for _ in range(4)]
            with pytest.raises(BookKeeperError):
                await asyncio.gather(*futures)
            with pytest.raises(BookKeeperError):
                await log.publish(b"2")
            with pytest.raises(BookKeeperError):
                await log.aclose()

    run(story)


# Creating and deleting -----------------------------------------------------------------------------------------------


def test_a_log_with_partitions_is_deleted_with_them_and_may_be_made_again() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        for partitions in (3, 2):
            await logs.create("many", partitions=partitions)
            with pytest.raises(LogExists):
                await logs.create("many", partitions=partitions)
            async with logs.writer("many", settings=ONE_BY_ONE) as log:
                for _number in range(partitions):
                    await log.publish(b"x")
            async with logs.cursor("many", "c"):
                pass
            with pytest.raises(IllegalOperation, match="partition of another"):
                await logs.delete("many-partition-0")
            with pytest.raises(IllegalOperation, match="Publish to the log"):
                async with logs.writer("many-partition-0"):
                    pass
            await logs.delete("many")
            for name in ("many", "many-partition-0"):
                with pytest.raises(NoSuchLog):
                    await logs.info(name)
            with pytest.raises(NoSuchLog):
                await logs.delete("many")
        async with cluster.client("other") as other:
            assert [ledger_id async for ledger_id in other.list_ledgers()] == []
            node = await other.node_tree().get("cursors/many-partition-0/c")
            assert node is not None
            assert decode_cursor(node.data).is_removed

    run(story)


def test_a_creation_or_a_deletion_that_was_interrupted_is_finished() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with cluster.client("other") as other:
            tree = other.node_tree()
            whole = LogManifest("made-halfway", SMALL, partitions=2)
            await tree.create("logs/half", encode_manifest(whole))
            async with logs.writer("half", settings=ONE_BY_ONE) as log:
                await log.publish(b"0")
            assert await logs.partitions("half") == ["half-partition-0", "half-partition-1"]
            await logs.create("many", partitions=2)
            node = await tree.get("logs/many")
            assert node is not None
            manifest = decode_manifest(node.data)
            gone = LogManifest(manifest.log_id, manifest.settings, type(manifest.state)(2), partitions=2)
            await tree.write("logs/many", encode_manifest(gone), node.version)  # the deletion came so far
        await logs.create("many", partitions=2)
        assert len(await logs.partitions("many")) == 2

    run(story)


def test_names_and_numbers_that_cannot_be_are_refused_before_anything_is_made() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        for wrong in (-1, 1001, True, "2"):
            with pytest.raises(ArgumentError, match="partitions must be"):
                await logs.create("many", partitions=wrong)  # type: ignore[arg-type]
        await logs.create("many-partition-1")
        with pytest.raises(LogExists, match="many-partition-1"):
            await logs.create("many", partitions=2)
        with pytest.raises(NoSuchLog):
            await logs.info("many")
        with pytest.raises(ArgumentError, match="MessageId"):
            logs.reader("log", "1:2")  # type: ignore[arg-type]

    run(story)


@pytest.mark.parametrize(
    "manifest",
    [LogManifest("a", partitions=4), LogManifest("a", partition=3), LogManifest("a"), LogManifest("a", epoch=2)],
)
def test_manifests_with_partitions_are_stored_in_a_format_of_their_own(manifest: LogManifest) -> None:
    data = encode_manifest(manifest)
    assert decode_manifest(data) == manifest
    has_partitions = manifest.partitions or manifest.partition >= 0
    assert data[1] == (2 if has_partitions else 1), "what earlier programs understand is stored as they know it"
    for wrong in ({"partitions": -1}, {"partitions": 1001}, {"partition": 1000}, {"partitions": 1, "partition": 0}):
        with pytest.raises(ValueError, match="partition"):
            LogManifest("a", **wrong)  # type: ignore[arg-type]

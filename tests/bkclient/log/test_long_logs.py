"""Logs of many ledgers: what is done for each ledger does not grow with their number."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bkclient.errors import MetadataSerializationError
from bkclient.log import Logs, LogSettings, LogTrimmed, MessageId
from bkclient.log.machine import codec
from bkclient.log.machine.codec import ManifestDecoder, decode_manifest, encode_manifest
from bkclient.log.machine.manifest import LedgerEnd, LogLedger, LogManifest
from tests.bkclient.log.test_logs import published, run
from tests.bkclient.virtual_cluster import VirtualCluster

ONE_EACH = LogSettings(max_ledger_entries=1, min_ledger_s=0)


class Counted:
    """Counts how often manifests are decoded, or, with ``_ledger_from``, ledgers in them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, function: str = "_table_from") -> None:
        self._count = 0
        decode = getattr(codec, function)

        def counted(data: Any) -> Any:
            self._count += 1
            return decode(data)

        monkeypatch.setattr(codec, function, counted)

    def taken(self) -> int:
        """The count since the last call."""
        count, self._count = self._count, 0
        return count


@pytest.mark.parametrize("ledgers", [4, 16])
def test_a_manifest_is_decoded_once_however_many_ledgers_are_read(
    monkeypatch: pytest.MonkeyPatch, ledgers: int
) -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        decodings = Counted(monkeypatch)
        async with published(logs, ledgers):
            assert decodings.taken() == 1, "an owner knows what it wrote itself"
        decodings.taken()
        async with logs.reader("log", follow=False) as reader:
            found = [message.payload async for message in reader]
        assert (len(found), decodings.taken()) == (ledgers, 1)
        async with logs.cursor("log", "c") as cursor:
            for _number in range(ledgers):
                cursor.acknowledge(await anext(cursor))
                await cursor.flush()
            assert await cursor.backlog_entries() == 0
        assert decodings.taken() == 1

    run(story, settings=ONE_EACH)


def test_a_reader_that_follows_decodes_the_manifest_when_it_does_not_know_what_comes_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 8):
            pass
        async with logs.reader("log") as reader:
            decodings = Counted(monkeypatch)
            for _number in range(8):
                await anext(reader)
            assert decodings.taken() == 0
            async with logs.writer("log") as log:
                await log.publish(b"8")
                await log.publish(b"9")
                decodings.taken()
                assert [(await anext(reader)).payload for _ in range(2)] == [b"8", b"9"]
            assert decodings.taken() <= 3, "one for each ledger that was not in the list, and one for the owner's end"

    run(story, settings=ONE_EACH)


@pytest.mark.parametrize("ledgers", [5, 20])
def test_a_reader_that_follows_decodes_each_ledger_twice_however_long_the_list_is(
    monkeypatch: pytest.MonkeyPatch, ledgers: int
) -> None:
    """Once when it is appended, and once with its end."""

    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 100):
            pass
        async with logs.reader("log") as reader, logs.writer("log") as log:
            for _number in range(100):
                await anext(reader)
            decoded = Counted(monkeypatch, "_ledger_from")
            for number in range(ledgers):
                await log.publish(b"%d" % number)
                assert (await anext(reader)).payload == b"%d" % number
            assert decoded.taken() <= 2 * ledgers

    run(story, settings=ONE_EACH)


def evolved(rng: Random, manifest: LogManifest) -> LogManifest:
    """What an owner, somebody who trims, or a program with a cursor makes of it."""
    ledgers, last = manifest.ledgers, manifest.ledgers[-1:]
    ends = [replace(each, end=LedgerEnd(each.ledger_id, rng.randrange(9), rng.randrange(99), 5)) for each in last]
    going = ledgers[: rng.randrange(3)]
    match rng.randrange(5):
        case 0 if going and all(each.end for each in going):
            ids = tuple(each.ledger_id for each in going)
            return replace(manifest, ledgers=ledgers[len(ids) :], trimmed=ids, trimmed_through=ids[-1])
        case 1 if last and last[0].end is None:  # it ended empty
            return replace(manifest, ledgers=ledgers[:-1])
        case 2 if last and last[0].end is None:
            return replace(manifest, ledgers=(*ledgers[:-1], *ends))
        case 3:
            return replace(manifest, cursors=tuple(sorted({"a", rng.choice("bcd")})), cursor_changes=rng.randrange(300))
    highest = max((manifest.trimmed_through, *(each.ledger_id for each in ledgers)))
    closed = (*ledgers[:-1], *(each if each.end else end for each, end in zip(last, ends, strict=True)))
    new = LogLedger(highest + rng.randrange(1, 200), manifest.epoch, rng.randrange(10**12))
    return replace(manifest, ledgers=(*closed, new), trimmed=())


@pytest.mark.parametrize("seed", range(5))
def test_a_version_is_decoded_alike_whatever_was_decoded_before(seed: int) -> None:
    rng, decoder = Random(seed), ManifestDecoder()
    manifest = LogManifest("id", epoch=1)
    for _ in range(200):
        if rng.random() < 0.9:
            manifest = evolved(rng, manifest)
        else:  # another log
            ledgers = tuple(LogLedger(each, 2, 7, LedgerEnd(each, 1)) for each in range(rng.randrange(9)))
            manifest = LogManifest("other", epoch=rng.randrange(2, 4), ledgers=ledgers)
        data = encode_manifest(manifest)
        if rng.random() < 0.1:
            decoder.know(data, manifest)
        assert decoder.decode(data) == decode_manifest(data) == manifest
        with pytest.raises(MetadataSerializationError):
            decoder.decode(data[:-1])


def test_a_trim_is_noticed_by_a_reader_that_knows_an_older_list() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6) as (_writer, ids), logs.reader("log") as reader:
            assert (await anext(reader)).payload == b"0"
            await logs.trim("log", MessageId(ids[4].ledger_id, 0))
            with pytest.raises(LogTrimmed):
                assert [(await anext(reader)).payload for _ in range(5)] == []

    run(story, settings=ONE_EACH)


@pytest.mark.parametrize("ids", [(), (3,), (3, 4, 9), tuple(range(0, 100, 3))])
def test_ledgers_are_found_as_by_looking_at_each(ids: tuple[int, ...]) -> None:
    ledgers = tuple(LogLedger(each, 1, 0, LedgerEnd(each, 0)) for each in ids)
    manifest = LogManifest("id", LogSettings(), epoch=1, ledgers=ledgers)
    for wanted in range(-1, 102):
        assert manifest.ledger(wanted) == next((each for each in ledgers if each.ledger_id == wanted), None)
        assert manifest.first_after(wanted) == next((each for each in ledgers if each.ledger_id > wanted), None)
        assert manifest.has(wanted) is (wanted in ids)

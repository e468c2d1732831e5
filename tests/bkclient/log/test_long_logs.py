"""Logs of many ledgers: what is done for each ledger does not grow with their number."""

from __future__ import annotations

import pytest

from bkclient.log import Logs, LogSettings, LogTrimmed, MessageId
from bkclient.log.machine import codec
from bkclient.log.machine.manifest import LedgerEnd, LogLedger, LogManifest
from tests.bkclient.log.test_logs import published, run
from tests.bkclient.virtual_cluster import VirtualCluster

ONE_EACH = LogSettings(max_ledger_entries=1, min_ledger_s=0)


class Counted:
    """Counts how often manifests are decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        decode = codec.decode_manifest

        def counted(data: bytes) -> LogManifest:
            self._count += 1
            return decode(data)

        monkeypatch.setattr("bkclient.log.store.decode_manifest", counted)

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

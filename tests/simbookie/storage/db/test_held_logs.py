"""A log that a flush fills up is no subject of compaction before the locations of its entries are set."""

from __future__ import annotations

from unittest import mock

from simbookie.crashes.runs import crash_run
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.logger import EntryLogger
from simbookie.world.loop import VirtualTimeLoop
from tests.simbookie.storage.stores import CountingDisk, done, entry, folders


def test_a_log_that_is_held_does_not_count_as_flushed_until_it_is_released() -> None:
    async def story() -> None:
        logger = EntryLogger(folders(CountingDisk()), EntryLogConfig(log_size_max=1500))
        logger.open()
        logger.add(1, entry(1, 0, bytes(400)))
        logger.add(1, entry(1, 1, bytes(400)))
        await done(logger.flush)
        assert logger.flushed_ids() == [0]
        logger.hold()
        for entry_id in range(2, 6):
            logger.add(1, entry(1, entry_id, bytes(400)))
        await done(logger.flush)
        logger.hold()
        assert logger.flushed_ids() == [0], "what is on the disk since has no locations"
        logger.release()
        assert logger.flushed_ids()[:2] == [0, 1]
        logger.close()

    loop = VirtualTimeLoop()
    loop.run_until_complete(story())
    loop.close()


def test_a_crash_run_that_comes_to_it_violates_nothing() -> None:
    assert crash_run("db", 809).violations == ()
    with mock.patch.object(EntryLogger, "hold", return_value=None):
        assert "I10" in {each.invariant for each in crash_run("db", 809).violations}

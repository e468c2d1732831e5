"""Fences that bookies forget when they are killed: in the three cases seen of real ones, and in no other."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from simbookie.storage.base import CrashMode, CrashReport
from simbookie.storage.forgetful import ForgetfulStorage, ForgetsLike
from simbookie.storage.memory import RecordLog

Virtually = Callable[[Callable[[], Any]], None]
SORTED, DB = ForgetsLike.SORTED, ForgetsLike.DB
INTERVAL_S = 10.0
#: Within one interval; to the next one.
SOON_S, A_CHECKPOINT_S = 0.1, 10.0


class Bookie:
    """A storage that is fenced, written to, waited for and killed, step by step."""

    def __init__(self, like: ForgetsLike) -> None:
        self.storage = ForgetfulStorage(like=like, checkpoint_interval_s=INTERVAL_S)
        self.reports: list[CrashReport] = []
        self.start()

    def start(self) -> None:
        self.storage.open(lambda: None, lambda _: None)

    async def play(self, story: str) -> bool:
        """``key entry fence other checkpoint kill stop``, a moment after each; tells whether ledger 1 is fenced in the end."""
        for word in story.split():
            if word == "key":
                self.storage.set_master_key(1, b"key")
            elif word == "entry":
                self._add(1)
            elif word == "fence":
                self.storage.fence(1, lambda *_: None, None)
            elif word == "other":
                if self.storage.ledger(2) is None:
                    self.storage.set_master_key(2, b"key")
                self._add(2)
            elif word == "checkpoint":
                await asyncio.sleep(A_CHECKPOINT_S)
            elif word == "kill":
                self.reports.append(self.storage.crash(CrashMode.PROCESS))
                self.start()
            elif word == "stop":
                closed = asyncio.Event()
                self.storage.shutdown(closed.set)
                await closed.wait()
                self.start()
            else:
                raise AssertionError(word)
            await asyncio.sleep(SOON_S)
        ledger = self.storage.ledger(1)
        return ledger is not None and ledger.fenced

    def _add(self, ledger_id: int) -> None:
        entry_id = len(self.storage.entry_ids(ledger_id))
        body = struct.pack(">qqqq", ledger_id, entry_id, -1, 0)
        self.storage.add_entry(ledger_id, entry_id, body, None, None)


@pytest.mark.parametrize(
    ("like", "story", "is_kept"),
    [
        # a fence that comes before any entry of its ledger
        (SORTED, "key fence kill", False),
        (DB, "key fence kill", False),
        (SORTED, "key fence entry kill", False),
        (DB, "key fence entry kill", False),
        (SORTED, "key entry fence kill", True),
        (DB, "key entry fence kill", True),
        (SORTED, "other key fence kill", False),
        (DB, "key fence other checkpoint kill", True),
        # the fence of an idle ledger
        (DB, "key entry checkpoint fence checkpoint kill", False),
        (SORTED, "key entry checkpoint fence checkpoint kill", True),
        (DB, "key entry checkpoint fence other checkpoint kill", True),
        (DB, "key entry checkpoint other fence checkpoint kill", True),
        (DB, "key entry checkpoint fence kill", True),
        (DB, "key entry checkpoint fence checkpoint other checkpoint kill", False),
        # a fence that was replayed
        (SORTED, "key entry kill checkpoint fence kill checkpoint kill", False),
        (SORTED, "key entry kill checkpoint fence kill kill", True),
        (SORTED, "key entry kill checkpoint fence kill other checkpoint kill", True),
        (SORTED, "key entry kill fence kill checkpoint kill", True),
        (SORTED, "key entry fence kill checkpoint kill", True),
        (DB, "key entry kill checkpoint fence kill checkpoint kill", False),
        # what is saved stays saved, and a bookie that ends in order saves everything
        (SORTED, "key entry fence checkpoint kill checkpoint checkpoint kill", True),
        (DB, "key entry fence checkpoint kill checkpoint checkpoint kill", True),
        (DB, "key fence stop checkpoint kill", True),
        (SORTED, "key fence stop kill checkpoint kill", True),
        # a fence that is set again is a new one
        (SORTED, "key fence kill entry fence kill", True),
    ],
)
def test_a_fence_is_forgotten_as_real_bookies_forget_it(
    virtually: Virtually, like: ForgetsLike, story: str, is_kept: bool
) -> None:
    async def play() -> None:
        bookie = Bookie(like)

        assert await bookie.play(story) == is_kept

        forgotten = [report.fences_forgotten for report in bookie.reports if report.fences_forgotten]
        if "fence kill entry fence" not in story:
            assert forgotten == ([] if is_kept else [(1,)]), "told once, at the crash"

    virtually(play)


@pytest.mark.parametrize("like", list(ForgetsLike))
def test_nothing_but_the_fence_is_forgotten(virtually: Virtually, like: ForgetsLike) -> None:
    async def play() -> None:
        bookie = Bookie(like)

        await bookie.play("key fence entry entry kill")

        assert bookie.storage.entry_ids(1) == [0, 1]
        ledger = bookie.storage.ledger(1)
        assert ledger is not None
        assert ledger.master_key == b"key"
        assert bookie.reports == [CrashReport(fences_forgotten=(1,))]
        assert str(bookie.reports[0]) == "lost 0 entries and 0 fences, forgot 1 fences"

    virtually(play)


def test_a_deleted_ledger_has_no_fence_to_forget(virtually: Virtually) -> None:
    async def play() -> None:
        bookie = Bookie(SORTED)
        await bookie.play("key fence")
        bookie.storage.delete_ledger(1)

        await bookie.play("kill")

        assert bookie.reports == [CrashReport()]

    virtually(play)


def test_a_fence_that_was_not_durable_is_lost_and_not_forgotten(virtually: Virtually) -> None:
    async def play() -> None:
        bookie = Bookie(SORTED)
        await bookie.play("key")
        bookie.storage.fence(1, lambda *_: None, None)

        report = bookie.storage.crash(CrashMode.POWER_LOSS)

        assert report == CrashReport(fences_lost=(1,))

    virtually(play)


def test_dropping_a_fence_keeps_positions_and_what_is_synced(virtually: Virtually) -> None:
    async def play() -> None:
        disk = RecordLog()
        storage = ForgetfulStorage(disk=disk)
        storage.open(lambda: None, lambda _: None)
        storage.set_master_key(1, b"key")
        storage.fence(1, lambda *_: None, None)
        storage.set_master_key(2, b"key")
        await asyncio.sleep(1)
        position = disk.position

        storage.crash(CrashMode.PROCESS)

        assert (disk.position, len(disk)) == (position, 2)
        assert disk.crash(CrashMode.POWER_LOSS) == [], "what is left is synced"

    virtually(play)


@pytest.mark.parametrize("interval_s", [0.0, -1.0])
def test_an_interval_is_positive(interval_s: float) -> None:
    with pytest.raises(ValueError, match="checkpoint_interval_s must be > 0, got"):
        ForgetfulStorage(checkpoint_interval_s=interval_s)

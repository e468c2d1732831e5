"""Logs of the shipped client in simulated worlds, under crashes and lost answers; and planted defects that such runs find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bkclient.log import MessageId
from bkclient.log import driver as driver_module
from bkclient.log.driver import OwnerDriver
from bkclient.log.machine.manifest import LedgerEnd
from bkclient.log.machine.owner import LogOwner
from tests.bkclient.log.log_world import Run, judge, play
from tests.bkclient.log.test_owner import (
    BelievesItsPredecessor,
    DropsWhatWasNotStored,
    SendsAgainBackwards,
    SendsAgainWhatWasStored,
    TakesConflictsForSuccess,
    WritesBeforeItLists,
)

SEEDS = 25


def test_what_was_acknowledged_is_there_once_and_in_order() -> None:
    runs = [play(seed) for seed in range(SEEDS)]
    assert [judge(run) for run in runs] == [[]] * SEEDS
    assert sum(len(run.acknowledged) for run in runs) > 10 * SEEDS
    assert sum(bool(run.failures) for run in runs) > SEEDS / 5, "owners were deposed"
    assert any(len(run.listed) > 5 for run in runs)


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_at_length() -> None:
    assert [(seed, broken) for seed in range(10_000) if (broken := judge(play(seed)))] == []


def test_the_same_seed_is_the_same_run() -> None:
    assert play(3) == play(3)


FOUND = [(MessageId(1, 0), "a0"), (MessageId(1, 1), "a1")]
GOOD = Run([("a", 0, MessageId(1, 0))], FOUND, {1}, {1})


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (replace(GOOD, found=FOUND[::-1]), "ascend"),
        (replace(GOOD, found=[*FOUND, (MessageId(2, 0), "a1")]), "twice"),
        (replace(GOOD, found=FOUND[1:]), "is at None"),
        (replace(GOOD, acknowledged=[("a", 0, MessageId(1, 1))]), "is at 1:0"),
        (replace(GOOD, found=[(MessageId(1, 0), "a1"), (MessageId(1, 1), "a0")]), "out of order"),
        (replace(GOOD, written={1, 2}), "not in the list"),
    ],
)
def test_the_judge_notices(run: Run, words: str) -> None:
    assert judge(GOOD) == []
    assert any(words in broken for broken in judge(run))


# Planted defects in the shell ----------------------------------------------------------------------------------------


def plant_owner(owner: type[LogOwner]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(driver_module, "LogOwner", owner)


def plant_no_fence(patch: pytest.MonkeyPatch) -> None:
    """A recovery that only looks, and takes what it sees for the end."""

    async def look(self: OwnerDriver, ledger_id: int) -> LedgerEnd:
        async with await self.store.client.open_ledger(ledger_id) as reader:
            return LedgerEnd(ledger_id, await reader.read_last_add_confirmed(), 0, 0)

    patch.setattr(OwnerDriver, "_recover", look)


OWNERS_WITH_DEFECTS = (
    BelievesItsPredecessor,
    DropsWhatWasNotStored,
    SendsAgainBackwards,
    SendsAgainWhatWasStored,
    TakesConflictsForSuccess,
    WritesBeforeItLists,
)


@pytest.mark.parametrize(
    "plant",
    [plant_no_fence, *map(plant_owner, OWNERS_WITH_DEFECTS)],
    ids=["NoFence", *(owner.__name__ for owner in OWNERS_WITH_DEFECTS)],
)
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(judge(play(seed)) for seed in range(4 * SEEDS))

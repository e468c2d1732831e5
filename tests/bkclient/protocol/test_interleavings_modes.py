"""Writers with options, and their recoveries, under arbitrary schedules; and proof that this finds defects."""

from __future__ import annotations

import pytest

from bkclient.protocol.append_options import AppendOptions
from tests.bkclient.protocol.guarantees import Violation
from tests.bkclient.protocol.mode_mutants import MUTANTS, Mutant
from tests.bkclient.protocol.modes import ModesWorld
from tests.bkclient.protocol.world import Configuration, wander

DELAYED = AppendOptions(delay_ensemble_change=True)
DEFERRED = AppendOptions(deferred_sync=True)
GIVEN = AppendOptions(entry_ids_given=True)
ALL_AT_ONCE = AppendOptions(
    delay_ensemble_change=True, entry_ids_given=True, enforce_fault_domains=True, quorum_timeout_s=8.0, max_resends=4
)

CONFIGURATIONS = {
    "delayed 2/2/1": Configuration(2, 2, 1, bookies=4, entries=3, recoveries=1, options=DELAYED),
    "delayed 3/3/2": Configuration(3, 3, 2, bookies=5, entries=3, recoveries=1, options=DELAYED),
    "delayed 3/3/3": Configuration(3, 3, 3, bookies=5, entries=3, recoveries=1, options=DELAYED),
    "delayed 4/3/2": Configuration(4, 3, 2, bookies=5, entries=4, recoveries=1, options=DELAYED),
    "disabled 2/2/2": Configuration(2, 2, 2, bookies=4, entries=3, recoveries=1, may_disable_changes=True),
    "disabled 3/3/2": Configuration(3, 3, 2, bookies=4, entries=3, recoveries=1, may_disable_changes=True),
    "both 3/3/2": Configuration(3, 3, 2, bookies=5, entries=3, recoveries=1, options=DELAYED, may_disable_changes=True),
    "deferred 2/2/2": Configuration(2, 2, 2, bookies=3, entries=3, recoveries=1, options=DEFERRED),
    "deferred 3/3/2": Configuration(3, 3, 2, bookies=4, entries=3, recoveries=1, options=DEFERRED),
    "deferred 4/2/2": Configuration(4, 2, 2, bookies=4, entries=4, recoveries=1, options=DEFERRED),
    "given ids 1/1/1": Configuration(1, 1, 1, bookies=3, entries=4, recoveries=1, options=GIVEN),
    "given ids 3/2/2": Configuration(3, 2, 2, bookies=5, entries=4, recoveries=1, options=GIVEN),
    "given ids, deferred 2/2/1": Configuration(
        2, 2, 1, bookies=3, entries=4, recoveries=1, options=AppendOptions(entry_ids_given=True, deferred_sync=True)
    ),
    "fault domains 3/3/2": Configuration(
        3, 3, 2, bookies=5, entries=3, recoveries=1, options=AppendOptions(enforce_fault_domains=True)
    ),
    "all at once 3/3/2": Configuration(
        3, 3, 2, bookies=6, entries=4, recoveries=1, options=ALL_AT_ONCE, may_disable_changes=True
    ),
}

#: As in the interleavings of an ordinary writer; the moves that are new come about as often as its appends.
WEIGHTS = {
    "request arrives": 6.0,
    "answer arrives": 6.0,
    "store acts": 4.0,
    "append": 2.0,
    "force": 1.0,
    "idle": 0.5,
    "changes are disabled or enabled": 0.5,
    "it is time to retry": 2.0,
    "clock ticks": 0.5,
    "bookie returns": 1.0,
    "request times out": 0.8,
    "recovery starts": 0.1,
    "bookie crashes": 0.2,
    "close": 0.05,
    "writer crashes": 0.05,
    "recovery crashes": 0.1,
}


def walk(configuration: Configuration, seed: int, moves: int) -> ModesWorld:
    """Make ``moves`` random moves in a new world."""
    return wander(ModesWorld(configuration), WEIGHTS, seed, moves)


def find_violation(configuration: Configuration) -> None:
    """Walk until a guarantee breaks, for so long that only a sound writer gets through."""
    for seed in range(3000):
        walk(configuration, seed, moves=100).settle()


@pytest.mark.rule("W-25")
@pytest.mark.rule("W-26")
@pytest.mark.rule("W-27")
@pytest.mark.rule("LAC-12")
@pytest.mark.rule("W-5")
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_guarantees_hold_with_every_option_on_random_walks(name: str) -> None:
    for seed in range(150):
        walk(CONFIGURATIONS[name], seed, moves=150).settle()


@pytest.mark.rule("LAC-15")
@pytest.mark.behaviour("T-175")
def test_walks_with_deferred_sync_reach_every_kind_of_end() -> None:
    ends: set[str] = set()
    for seed in range(300):
        world = walk(CONFIGURATIONS["deferred 3/3/2"], seed, moves=150)
        world.settle()
        metadata, guarantees = world.store.metadata, world.modes_guarantees
        if metadata.is_closed:
            end = metadata.last_entry_id
            ends.add("cut off" if end < guarantees.acknowledged else "all acknowledged")
            ends.add("more than was forced" if end > guarantees.forced else "as forced")
        ends.add("some were forced" if guarantees.forced >= 0 else "none was forced")

    assert ends == {
        "cut off",
        "all acknowledged",
        "more than was forced",
        "as forced",
        "some were forced",
        "none was forced",
    }


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.plant.__name__)
def test_every_planted_defect_of_an_option_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)

    with pytest.raises(Violation) as caught:
        find_violation(CONFIGURATIONS[mutant.configuration])

    assert caught.value.clause in mutant.breaks

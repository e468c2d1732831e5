"""Who judges what: every witness says which clauses it judges, judges these and no other, and mutants name what exists."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import scenarios
from bkclient.ledger import LedgerState
from scenarios import liveness
from scenarios.checker import CLAUSES as ONLINE
from scenarios.clauses import CLAUSES
from scenarios.machines.bookies import Message
from scenarios.machines.broken import BrokenClause
from scenarios.machines.guarantees import Guarantees
from scenarios.machines.model import LedgerModel
from scenarios.machines.options_world import OptionsGuarantees, OptionsWorld
from scenarios.machines.storage_world import StorageGuarantees
from scenarios.machines.world import Configuration, MachineWorld
from scenarios.machines.worlds import WORLDS
from scenarios.mutants import MACHINE_MUTANTS, MUTANTS, RUN_MUTANTS, Mutant
from tests.scenarios.test_mutants import WHERE
from tests.tools.invariants_page import unexercised, witnesses

MACHINES = Path(scenarios.__file__).parent / "machines"
SMALL = Configuration(2, 2, 2, bookies=3, entries=2, recoveries=2)


def raised(*modules: str) -> set[str]:
    """The clauses that these modules of ``scenarios/machines`` raise as broken, by their text."""
    return {
        constant.value
        for module in modules
        for call in ast.walk(ast.parse((MACHINES / f"{module}.py").read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "BrokenClause"
        for constant in ast.walk(call.args[0])
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    }


def test_a_witness_of_the_machines_says_what_it_judges() -> None:
    assert set(Guarantees.clauses) == raised("guarantees", "clients", "world")
    assert set(OptionsGuarantees.clauses) - set(Guarantees.clauses) <= raised("options_world")
    assert raised("options_world") <= set(OptionsGuarantees.clauses)
    assert set(LedgerModel.clauses) == raised("model")
    assert set(StorageGuarantees.clauses) <= set(LedgerModel.clauses) | set(Guarantees.clauses)
    assert not raised("storage_world")


def test_every_clause_has_a_witness() -> None:
    judged = set().union(*witnesses().values())
    assert judged == set(CLAUSES)
    assert set(liveness.CLAUSES) <= judged


# Mutants -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_a_mutant_names_clauses_that_a_witness_of_its_judges_and_a_world_that_exists(mutant: Mutant) -> None:
    judges = witnesses()
    judged = (judges["online"] | judges["stage"] if mutant.in_runs else set()) | (
        judges["machines"] if mutant.world else set()
    )
    assert set(mutant.clauses) <= judged
    assert mutant.clauses == tuple(sorted(set(mutant.clauses), key=lambda number: (number[0], int(number[1:]))))
    assert mutant.world in {"", *WORLDS}
    assert mutant.name in RUN_MUTANTS or mutant.name in MACHINE_MUTANTS


def test_what_runs_are_not_seen_to_break_worlds_are() -> None:
    """The tests of walks hold a mutant to one of its clauses; here is which of them only worlds show."""
    only_in_worlds = {name: set(mutant.clauses) - set(WHERE[name][1]) for name, mutant in RUN_MUTANTS.items()}
    assert {name: clauses for name, clauses in only_in_worlds.items() if clauses} == {
        "one-denial-decides": {"A1"},
        "recovery-closes-before-write-back": {"B4"},
        "recovery-lac-advances": {"D6"},
        "acks-during-ensemble-change": {"A2"},
        "ensemble-used-before-stored": {"C6"},
        "writer-closes-at-last-pushed": {"A1"},
        "writer-closes-at-the-lac-it-told": {"G2"},
        "change-ignores-takeover": {"B2"},
        "nothing-resent-after-change": {"L9"},
        "writer-closes-over-closed": {"B2", "B3"},
        "replaced-bookie-keeps-acknowledgements": {"B4"},
        "replaced-bookie-still-answers": {"B4"},
        "acks-out-of-order": {"L9", "L10"},
        # lost copies of what was not forced are forgiven, and a closed ledger that cannot be read is not
        "lac-follows-acks-in-spite-of-deferred-sync": {"A1", "B4", "D6"},
        "force-needs-ack-quorum-only": {"A1", "A5", "B4"},
        "force-covers-what-came-meanwhile": {"B4", "D6", "D16"},
        "close-includes-what-was-not-forced": {"A1", "B4"},
        "deferred-sync-allows-ensemble-changes": {"C12"},
        "duplicates-below-sequence-head-accepted": {"A6", "G4"},
    }


def test_runs_show_every_defect() -> None:
    """Also those that a world of machines shows."""
    assert MUTANTS.keys() == RUN_MUTANTS.keys()


def test_the_clauses_that_no_mutant_breaks_are_these() -> None:
    assert unexercised() == (
        *("L12", "L4", "C1", "C2", "C4", "C10", "C11", "D7", "L11", "B8", "E10"),
        *("E4", "D5", "F2", "B5", "M1", "D8", "D10", "D11"),
    )
    assert set(unexercised()) <= set(ONLINE) | {clause for clause, _ in BREACHES}, "nothing shows that they are judged"


# Breaches of the machines' guarantees ------------------------------------------------------------------------------


def _confirmation_taken_back() -> Iterator[None]:
    world = MachineWorld(SMALL)
    world.move("append", 0)
    for move in ("request arrives", "request arrives", "answer arrives", "answer arrives"):
        world.move(move, 0)
    yield
    world.writer.machine.adds.last_add_confirmed = -1
    world.guarantees.check()


def _state_that_goes_back() -> Iterator[None]:
    world = MachineWorld(SMALL)
    world.move("recovery starts", 0)
    world.move("store acts", 0)
    before = world.store.metadata
    assert before.state is LedgerState.IN_RECOVERY
    world.store.edit(lambda metadata: replace(metadata, state=LedgerState.OPEN))
    yield
    world.guarantees.on_metadata(world.recoveries[0], before)


def _content_of_ones_own() -> Iterator[None]:
    world = MachineWorld(SMALL)
    world.move("append", 0)
    message = world.requests[0]
    assert message.add is not None
    other = Message(message.client, message.bookie_id, "add", 0, add=message.add._replace(payload=b"other"))
    yield
    world.guarantees.on_stored(other)


def _recovery_in_vain() -> Iterator[None]:
    world = MachineWorld(SMALL)
    yield
    world.guarantees.check_closed()


def _close_that_ends_twice() -> Iterator[None]:
    world = MachineWorld(SMALL)
    world.move("close", 0)
    world.move("store acts", 0)
    world.guarantees.check_settled()
    world.writer.endings += 1
    yield
    world.guarantees.check_settled()


def _force_that_never_ends() -> Iterator[None]:
    named = WORLDS["deferred-2-2-2"]
    world = OptionsWorld(named.configuration)
    for move in ("append", "request arrives", "request arrives", "answer arrives", "answer arrives", "force"):
        world.move(move, 0)
    assert world.requests
    world.requests.clear()
    yield
    world.settle()


#: Clauses that the machines cannot be made to break by a mutant, each with what breaks it, from where the generator stops.
BREACHES: tuple[tuple[str, Callable[[], Iterator[None]]], ...] = (
    ("G2", _confirmation_taken_back),
    ("C3", _state_that_goes_back),
    ("B8", _content_of_ones_own),
    ("L4", _recovery_in_vain),
    ("L11", _force_that_never_ends),
    ("L12", _close_that_ends_twice),
)


@pytest.mark.parametrize(("clause", "breach"), BREACHES, ids=[clause for clause, _ in BREACHES])
def test_the_guarantees_of_the_machines_notice_a_breach(clause: str, breach: Callable[[], Iterator[None]]) -> None:
    steps = breach()
    next(steps)
    with pytest.raises(BrokenClause) as caught:
        next(steps)
    assert caught.value.clause == clause

"""The machines do what the published specification says; and what they do otherwise is noticed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkclient.errors import Code
from bkclient.protocol.append_options import AppendOptions
from scenarios.exhaustive.configuration import CONFIGURATIONS, SmallCluster
from scenarios.exhaustive.search import Search
from scenarios.machines.bookies import MachineBookie
from scenarios.machines.world import Configuration
from scenarios.mutants import MACHINE_MUTANTS
from scenarios.specification.conformance import ACTIONS, DIFFERENCES, Conformed, conform

PAGE = Path(__file__).parents[2] / "docs/inside/specification.md"


RIVALS = SmallCluster(1, 1, 1, bookies=1, entries=1, recoveries=2)
#: The writer changes the ensemble twice, may not hear that it did, and closes at any time.
TROUBLED = SmallCluster(1, 1, 1, bookies=2, entries=1, writer_timeouts=2, lost_answers=1, closes=True)


def conformed(cluster: str | SmallCluster) -> Conformed:
    """Clauses are of no consequence here: a search ends with all states, whatever is wrong in them."""
    search = Search(CONFIGURATIONS[cluster] if isinstance(cluster, str) else cluster, clauses=frozenset())
    assert search.run().is_complete
    return conform(search.moves)


@pytest.mark.parametrize(
    "cluster", ["one-copy", "both-copies", RIVALS, TROUBLED, "both-copies-change", "striped"], ids=str
)
def test_every_step_is_specified(cluster: str | SmallCluster) -> None:
    found = conformed(cluster)
    assert found.wrong == []
    assert found.steps > 20
    assert found.actions.keys() <= {*ACTIONS, *DIFFERENCES}


def test_every_action_is_taken() -> None:
    assert set(ACTIONS) <= conformed("one-copy-change").actions.keys()


def test_the_page_lists_the_differences() -> None:
    first, *_ = PAGE.read_text().partition("## Planted defects")
    assert re.findall(r"^\| `([^`]+)` \|", first, re.MULTILINE) == list(DIFFERENCES)


def _mutants() -> list[tuple[str, str, str]]:
    """The table of planted defects on the page: defect, configuration, what is wrong."""
    _, _, section = PAGE.read_text().partition("## Planted defects\n")
    return re.findall(r"^\| `(\S+)` \| `(\S+)` \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)


@pytest.mark.deep
@pytest.mark.parametrize(("mutant", "configuration", "wrong"), _mutants())
def test_steps_of_planted_defects_are_not_specified(mutant: str, configuration: str, wrong: str) -> None:
    with MACHINE_MUTANTS[mutant].applied():
        found = conformed(configuration)
    assert any(one.endswith(f": {wrong}") for one in found.wrong)


def test_the_page_has_planted_defects() -> None:
    assert len(_mutants()) > 15


def test_the_specification_lets_the_lac_of_a_recovery_advance() -> None:
    """It is what lets a reader see an entry that a rival recovery leaves out; the clauses find it."""
    with MACHINE_MUTANTS["recovery-lac-advances"].applied():
        assert conformed("both-copies").wrong == []


# Bookies -----------------------------------------------------------------------------------------------------------

Handle = Callable[..., Any]


def _stores_in_spite_of_its_fence(handle: Handle) -> Handle:
    return lambda self, asked, *, of_writer: handle(self, asked, of_writer=of_writer and asked.add is None)


def _forgets_its_fence(handle: Handle) -> Handle:
    def mutated(self: MachineBookie, asked: Any, *, of_writer: bool) -> Any:
        answer = handle(self, asked, of_writer=of_writer)
        self.is_fenced = False
        return answer

    return mutated


def _says_that_it_stored(handle: Handle) -> Handle:
    return lambda self, asked, *, of_writer: (
        (Code.OK, None) if asked.add is not None else handle(self, asked, of_writer=of_writer)
    )


def _denies_everything(handle: Handle) -> Handle:
    return lambda self, asked, *, of_writer: (
        (Code.NO_SUCH_ENTRY, None) if asked.kind == "read" else handle(self, asked, of_writer=of_writer)
    )


@pytest.mark.parametrize(
    ("plant", "wrong"),
    [
        (_stores_in_spite_of_its_fence, "a fenced bookie stores the writer's entry"),
        (_forgets_its_fence, "a fence is not kept, or came from nowhere"),
        (_says_that_it_stored, "an add stores another entry"),
        (_denies_everything, "a fence is not kept, or came from nowhere"),
    ],
)
def test_what_a_bookie_may_not_do_is_noticed(
    plant: Callable[[Handle], Handle], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MachineBookie, "handle", plant(MachineBookie.handle))
    assert any(one.startswith("bookie: ") and one.endswith(wrong) for one in conformed("both-copies").wrong)


# What was found by it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINE_MUTANTS)
def test_a_planted_defect_leaves_the_options_that_writers_share_as_they_are(name: str) -> None:
    shared = inspect.signature(Configuration).parameters["options"].default
    with MACHINE_MUTANTS[name].applied():
        Search(SmallCluster(1, 1, 1, bookies=2, recoveries=0, writer_timeouts=1), clauses=frozenset()).run()
    assert shared == AppendOptions()

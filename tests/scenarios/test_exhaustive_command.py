"""``bk-chaos exhaustive``: what it prints, where it stops, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from scenarios.cli.app import app
from scenarios.exhausting import SearchLimits
from scenarios.exhaustive.configuration import CONFIGURATIONS
from scenarios.exhaustive.conversations import Conversations
from scenarios.exhaustive.search import Search, Searched
from scenarios.exhaustive.verifying import Verified
from scenarios.specification.conformance import ACTIONS, Conformed

PAGE = Path(__file__).parents[2] / "docs/inside/exhaustive-search.md"
LOST_FENCE = ("both-copies", "--mutant", "recovery-reads-do-not-fence", "--clause", "A1")


def exhaustive(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["exhaustive", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def as_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(exhaustive(*arguments, "--json", code=code).stdout)
    return shown


def test_a_complete_search_is_a_proof() -> None:
    shown = as_json("one-copy", "either-copy")
    first, second = shown["configurations"]
    assert (first["configuration"], first["states"], first["complete"], first["broken"]) == ("one-copy", 50, True, None)
    assert shown["states"] == first["states"] + second["states"]
    assert first["verified"]["checks"].keys() == {"ended", "dead", "alone", "rivals"}
    assert first["verified"]["wrong"] == []
    assert first["specification"]["wrong"] == []
    assert first["specification"]["actions"].keys() & set(ACTIONS)
    assert set(first["numbers"]) >= {"machine_steps", "writer_states", "recovery_states"}
    assert sum(first["ends"].values()) == 2
    text = exhaustive("one-copy").stdout
    assert "holds" in text
    assert "1/1/1, 1 bookie, 1 entry, 1 recovery" in text
    assert "reductions verified: " in text
    assert "specification: 34 steps, 15 of 20 actions" in text


def test_sizes_of_ones_own_are_searched() -> None:
    sizes = ("--quorums", "1/1/1", "--bookies", 2, "--writer-timeouts", 1, "--close")
    (found,) = as_json(*sizes)["configurations"]
    assert found["cluster"]["closes"] is True
    assert (found["cluster"]["bookies"], found["cluster"]["entries"]) == (2, 1)
    assert found["complete"]


def test_a_violation_is_told_as_moves_and_what_there_is_at_the_end() -> None:
    (found,) = as_json(*LOST_FENCE, code=1)["configurations"]
    broken = found["broken"]
    assert (broken["invariant"], broken["clause"]) == ("NoLacTruncation", "A1")
    assert broken["trace"][0] == "writer appends entry 0"
    assert broken["trace"][-1] == "writer hears from b: add 0: ok"
    assert broken["at_the_end"][0].startswith("metadata: CLOSED at -1")
    assert found["verified"] is None
    text = exhaustive(*LOST_FENCE, code=1).stdout
    assert "NoLacTruncation (A1): closed at -1, 0 was acknowledged" in text
    assert "  1 writer appends entry 0" in text


def _finds() -> list[tuple[str, str, str, int, int]]:
    """The table of planted defects on the page: defect, configuration, clause, states, moves."""
    rows = re.findall(
        r"^\| `(\S+)` \| `(\S+)` \| \w+ \((\w+)\) \| ([\d,]+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE
    )
    return [
        (name, where, clause, int(states.replace(",", "")), int(moves)) for name, where, clause, states, moves in rows
    ]


@pytest.mark.deep
@pytest.mark.parametrize(("mutant", "configuration", "clause", "states", "moves"), _finds())
def test_planted_defects_are_found_as_the_page_says(
    mutant: str, configuration: str, clause: str, states: int, moves: int
) -> None:
    (found,) = as_json(configuration, "--mutant", mutant, code=1)["configurations"]
    assert (found["broken"]["clause"], found["states"], len(found["broken"]["trace"])) == (clause, states, moves)


def test_the_page_has_planted_defects() -> None:
    assert len(_finds()) > 20


def test_a_shortest_way_is_found_unless_another_order_is_asked_for() -> None:
    short, deep = (
        as_json(*LOST_FENCE, *option, code=1)["configurations"][0]["broken"] for option in ((), ("--depth-first",))
    )
    assert len(short["trace"]) <= len(deep["trace"])
    assert short["clause"] == deep["clause"] == "A1"


@pytest.mark.sweep
def test_two_recoveries_and_an_advancing_lac_show_a_dirty_read() -> None:
    arguments = ("both-copies-rivals-2", "--mutant", "recovery-lac-advances", "--clause", "F5", "--depth-first")
    (found,) = as_json(*arguments, code=1)["configurations"]
    assert found["broken"]["invariant"] == "VisibleLacBounded"
    assert any(line.startswith("recovery 2 ") for line in found["broken"]["trace"])


def test_without_a_reduction_there_are_more_states() -> None:
    some, more = (as_json("one-copy", *option)["states"] for option in ((), ("--without", "alone")))
    assert some < more


@pytest.mark.parametrize("limit", [("--max-states", 100), ("--max-seconds", 0.001), ("--max-memory", 1)])
def test_a_search_that_meets_a_limit_proves_nothing(limit: tuple[object, ...]) -> None:
    (found,) = as_json("both-copies", *limit, code=3)["configurations"]
    assert not found["complete"]
    assert str(found["stopped"]).startswith("more than ")
    assert "not complete" in exhaustive("both-copies", *limit, code=3).stdout


def test_a_cluster_that_is_too_large_for_the_numbers_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.exhaustive.moves._MASK", 127)
    (found,) = as_json("both-copies", code=3)["configurations"]
    assert found["stopped"] == "more than 127 numbers of one kind"


def test_limits_are_told_apart() -> None:
    assert SearchLimits().exceeded(10**9, 10**9) is None
    assert SearchLimits(states=5).exceeded(5, 0) == "more than 5 states"
    assert SearchLimits(seconds=2).exceeded(5, 2) == "more than 2 seconds"


def test_a_reduction_that_was_not_justified_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.exhausting.verify", lambda _moves: Verified(wrong=["dead: it matters"]))
    assert "NOT JUSTIFIED: dead: it matters" in exhaustive("one-copy", code=3).stdout


def test_a_step_that_is_not_specified_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Conformed(wrong=["writer: append: it sends nothing"])
    monkeypatch.setattr("scenarios.exhausting.conform", lambda _moves: wrong)
    shown = exhaustive("one-copy", code=3).stdout
    assert "a step is not specified" in shown
    assert "NOT SPECIFIED: writer: append: it sends nothing" in shown


def test_an_interrupt_shows_what_was_found_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    handled, calls = Conversations.handled, []

    def interrupted(*args: Any) -> int:
        calls.append(args)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return handled(*args)

    monkeypatch.setattr(Conversations, "handled", interrupted)
    (found,) = as_json("both-copies", "either-copy", code=130)["configurations"]
    assert found["stopped"] == "interrupted"
    assert found["states"] > 1


def test_progress_is_told_from_time_to_time() -> None:
    told: list[int] = []

    def watch(searched: Searched) -> None:
        told.append(searched.states)

    Search(CONFIGURATIONS["either-copy"], watch=watch).run()
    assert told[0] == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("both-copy",), "no configuration is called both-copy; did you mean both-copies?"),
        (("one-copy", "--entries", 2), "a configuration has its own sizes"),
        (("--quorums", "3-3-2"), "--quorums 3-3-2 is not of the form 3/3/2"),
        (("--quorums", "2/3/2"), "needed: 1 <= ack quorum <= write quorum <= ensemble size <= bookies"),
        (("--entries", 5), "entries: 5 is not between 0 and 4"),
        (("--bookies", 8), "bookies: 8 is not between 1 and 7"),
        (("--recoveries", 4), "recoveries: 4 is not between 0 and 3"),
        (("--mutant", "one-denial"), "did you mean one-denial-decides?"),
        (("--mutant", "digests-are-not-verified"), "digests-are-not-verified is no defect of the machines"),
        (("--clause", "Z9"), "no clause is called Z9"),
        (("--without", "everything"), "no reduction is called everything"),
    ],
)
def test_what_means_nothing_is_refused(arguments: tuple[object, ...], told: str) -> None:
    result = exhaustive(*arguments, code=2)
    assert told in result.stderr
    assert not result.stdout

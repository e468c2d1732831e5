"""What a writer remembers of failed bookies, so that its changes make progress; and acting on failures in idle times."""

from __future__ import annotations

import pytest

from bkclient.errors import Code
from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.ensemble import BookieMemory, replace_failed
from scenarios.machines.store import LEDGER_ID
from tests.bkclient.protocol.harness import Writer

# Progress -----------------------------------------------------------------------------------------------------------


def fail_until_it_ends(writer: Writer, limit: int = 100) -> int:
    """Every bookie fails whatever it is sent; returns how many times one did."""
    failures = 0
    while writer.machine.fatal_error is None:
        failures += 1
        assert failures < limit, "the writer replaces without end"
        writer.timeout(" ".join(dict.fromkeys(writer.sent().split())))
        while writer.updates:
            writer.metadata_arrives()
    return failures


@pytest.mark.rule("H-7")
@pytest.mark.rule("W-31")
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 3, 2), (3, 2, 2)], ids=str)
@pytest.mark.parametrize("spares", ["d", "defg"])
def test_a_writer_does_not_go_back_and_forth_among_registered_but_dead_bookies(
    sizes: tuple[int, int, int], spares: str
) -> None:
    writer = Writer(sizes, "abc"[: sizes[0]], spares="abc" + spares)
    writer.append()

    fail_until_it_ends(writer)

    assert writer.failed == [(0, Code.NOT_ENOUGH_BOOKIES)]
    assert writer.store.writes <= 2 * len("abc" + spares)


@pytest.mark.rule("H-7")
def test_a_failed_bookie_is_offered_again_when_nobody_else_is_left() -> None:
    writer = Writer((1, 1, 1), "a", spares="ab")
    writer.append()
    writer.ok("0a")
    writer.append()
    writer.timeout("1a")
    writer.metadata_arrives()
    writer.ok("1b")

    writer.append()
    writer.timeout("2b")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "a", 1: "b", 2: "a"}
    writer.ok("2a")
    assert writer.acked == [0, 1, 2]


@pytest.mark.rule("H-7")
def test_a_fresh_bookie_is_preferred_to_one_that_failed() -> None:
    writer = Writer((1, 1, 1), "a", spares="abc")
    writer.append()
    writer.timeout("0a")
    writer.metadata_arrives()
    writer.ok("0b")

    writer.append()
    writer.timeout("1b")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "b", 1: "c"}


@pytest.mark.rule("H-7")
def test_a_bookie_that_failed_from_the_start_is_not_offered_again_before_the_ledger_has_doubled() -> None:
    writer = Writer((2, 2, 1), "ab", spares="c")
    writer.append()
    writer.timeout("0b")
    writer.metadata_arrives()
    writer.ok("0a")
    writer.append()
    writer.spares = "cb"
    writer.timeout("1c")  # c never acknowledged anything
    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "ac", 1: "ab"}

    writer.timeout("1b")
    writer.metadata_arrives()

    assert writer.failed == [(1, Code.NOT_ENOUGH_BOOKIES)]


@pytest.mark.rule("H-7")
def test_two_bookies_that_served_before_and_died_since_are_each_tried_once_more() -> None:
    writer = Writer((1, 1, 1), "a", spares="ab")
    writer.append()
    writer.ok("0a")
    writer.append()
    writer.timeout("1a")
    writer.metadata_arrives()
    writer.ok("1b")
    writer.sent()
    writer.append()

    fail_until_it_ends(writer)

    assert writer.failed == [(2, Code.NOT_ENOUGH_BOOKIES)]


@pytest.mark.rule("H-7")
def test_no_bookie_comes_back_within_the_change_that_it_caused() -> None:
    writer = Writer((2, 2, 2), "ab", spares="ca")
    writer.append()
    writer.timeout("0a")
    writer.timeout("0b")
    writer.metadata_arrives()
    writer.metadata_arrives()

    assert writer.failed == [(0, Code.NOT_ENOUGH_BOOKIES)]
    assert writer.store.ensembles == {0: "cb"}


@pytest.mark.rule("H-7")
def test_nobody_waits_for_an_acknowledgement_of_a_bookie_that_left() -> None:
    memory = BookieMemory()

    memory.note_change(("a",), ("b",), [])
    memory.note_change(("b",), ("c",), [])

    assert list(memory.unproven) == ["c"]


@pytest.mark.rule("H-7")
@pytest.mark.parametrize("entries", [1, 2, 5])
def test_a_bookie_that_failed_from_the_start_is_the_last_resort_once_the_ledger_has_doubled(entries: int) -> None:
    memory = BookieMemory()
    memory.note_change(("a",), ("b",), [])
    memory.note_failed(["b"], entries)

    assert memory.useless(2 * entries - 1) == ["b"]
    assert (memory.useless(2 * entries), memory.last_resort(2 * entries)) == ([], ["b"])


@pytest.mark.rule("H-7")
@pytest.mark.parametrize("is_late", [True, False])
def test_one_acknowledgement_early_or_late_earns_a_bookie_another_chance(is_late: bool) -> None:
    writer = Writer((2, 2, 1), "ab", spares="c")
    writer.append()
    writer.timeout("0b")
    writer.metadata_arrives()
    writer.ok("0a 0c" if is_late else "0c 0a")
    writer.append()
    writer.spares = "bc"
    writer.timeout("1c")
    writer.metadata_arrives()
    writer.ok("1b")
    writer.spares = "c"

    writer.append()
    writer.timeout("2b")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "ac", 1: "ab", 2: "ac"}


@pytest.mark.rule("W-31")
def test_those_of_the_last_resort_are_asked_for_only_after_all_others() -> None:
    asked: list[frozenset[BookieId]] = []

    def choose(ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        asked.append(excluded)
        return None if "x" in excluded else "x"

    ensemble = replace_failed(LEDGER_ID, tuple("ab"), {0: "a"}, choose, failed_before=["y"], last_resort=["x"])

    assert ensemble == ("x", "b")
    assert asked == [frozenset("axy"), frozenset("ay")]


# Bookies that nobody could replace ----------------------------------------------------------------------------------


def partial() -> Writer:
    """A writer whose bookie c failed and stayed, while a was replaced by d."""
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.ok("0a 0b")
    writer.append()
    writer.timeout("1c 1a")
    while writer.updates:
        writer.metadata_arrives()
    return writer


@pytest.mark.rule("H-7")
@pytest.mark.rule("W-40")
def test_a_shortage_in_a_later_pass_of_a_change_is_a_partial_replacement_too() -> None:
    writer = partial()

    assert writer.store.ensembles == {0: "abc", 1: "abd"}
    assert writer.failed == []
    writer.ok("1b 1d")
    assert writer.acked == [0, 1]


@pytest.mark.rule("H-7")
def test_a_bookie_known_to_be_irreplaceable_costs_no_change_while_entries_can_do_without_it() -> None:
    writer = partial()
    writer.ok("1b 1d")
    for entry_id in range(2, 6):
        writer.append()
        writer.timeout(f"{entry_id}a")
        writer.ok(f"{entry_id}b {entry_id}d")
        writer.timeout(f"{entry_id}a")

    assert writer.acked == [0, 1, 2, 3, 4, 5]
    assert writer.updates == []
    assert writer.store.writes == 1


@pytest.mark.rule("H-7")
def test_an_entry_that_cannot_do_without_it_ends_the_writer() -> None:
    writer = partial()
    writer.ok("1b 1d")
    writer.append()

    writer.timeout("2a")
    writer.timeout("2b")
    writer.metadata_arrives()

    assert writer.failed == [(2, Code.NOT_ENOUGH_BOOKIES)]


@pytest.mark.rule("H-7")
def test_a_bookie_that_came_back_is_like_any_other_again() -> None:
    writer = partial()
    writer.ok("1b 1d")
    writer.append()
    writer.ok("2a 2b")
    writer.spares = "xy"
    writer.machine.act_on_late_failures()
    assert writer.updates == []

    writer.append()
    writer.timeout("3a")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 1: "abd", 3: "xbd"}


@pytest.mark.rule("H-7")
def test_a_bookie_that_came_back_is_replaced_at_its_next_failure_although_the_entry_could_do_without_it() -> None:
    writer = partial()
    writer.ok("1b 1d")
    writer.append()
    writer.ok("2a 2b")
    writer.spares = "x"

    writer.append()
    writer.timeout("3a")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 1: "abd", 3: "xbd"}


@pytest.mark.rule("H-7")
@pytest.mark.rule("W-29")
def test_another_failure_of_a_bookie_that_nobody_could_replace_costs_no_further_pass() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d", max_ensemble_changes=2)
    writer.append(b"", b"")
    writer.timeout("0c")
    writer.timeout("0a")
    writer.metadata_arrives()  # c is replaced; the second pass finds nobody for a
    writer.timeout("1a")
    writer.metadata_arrives()

    assert (writer.state, writer.failed) == ("open", [])
    writer.ok("0b 0d 1b 1d")
    assert writer.acked == [0, 1]


# Idle times ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("H-5")
@pytest.mark.rule("W-33")
def test_an_idle_writer_replaces_a_bookie_that_failed_after_the_quorum() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.ok("0a 0b")
    writer.timeout("0c")

    writer.machine.act_on_late_failures()
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 1: "abd"}
    writer.machine.act_on_late_failures()
    assert writer.updates == []


@pytest.mark.rule("H-5")
def test_an_idle_writer_replaces_what_nobody_could_replace_before() -> None:
    writer = partial()
    writer.ok("1b 1d")
    was_degraded = writer.machine.is_degraded
    writer.spares = "dx"

    writer.machine.act_on_late_failures()
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 1: "abd", 2: "xbd"}
    assert (was_degraded, writer.machine.is_degraded) == (True, False)


@pytest.mark.rule("H-5")
def test_an_idle_writer_is_not_ended_for_lack_of_bookies() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append()
    writer.ok("0a 0b")
    degraded = [writer.machine.is_degraded]
    writer.timeout("0c")

    writer.machine.act_on_late_failures()

    assert writer.updates == []
    assert writer.machine.is_writable
    degraded.append(writer.machine.is_degraded)
    writer.close()
    degraded.append(writer.machine.is_degraded)
    assert degraded == [False, True, False]


@pytest.mark.rule("H-5")
def test_nor_if_the_spare_bookie_disappears_in_between() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.ok("0a 0b")
    writer.timeout("0c")
    writer.machine.act_on_late_failures()
    writer.spares = ""
    writer.store.edit(lambda metadata: metadata)  # a conflict: chosen anew

    writer.metadata_arrives()

    assert (writer.state, writer.failed) == ("open", [])
    writer.append()
    writer.ok("1a 1b")
    assert writer.acked == [0, 1]


@pytest.mark.rule("H-5")
def test_a_placement_that_offers_what_it_must_not_ends_an_idle_writer_like_a_busy_one() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.ok("0a 0b")
    writer.timeout("0c")
    writer.replace_bookie = lambda *_: "a"  # type: ignore[method-assign]

    writer.machine.act_on_late_failures()
    writer.metadata_arrives()

    assert writer.machine.fatal_error is not None
    assert writer.machine.fatal_error.code is Code.UNEXPECTED_CONDITION


@pytest.mark.rule("H-5")
@pytest.mark.rule("W-29")
def test_idle_times_do_not_use_up_more_changes_than_allowed() -> None:
    writer = Writer((3, 3, 2), "abc", spares="de", max_ensemble_changes=1)
    for entry_id, dead in ((0, "c"), (1, "d")):
        writer.append()
        writer.ok(f"{entry_id}a {entry_id}b")
        writer.timeout(f"{entry_id}{dead}")
        writer.machine.act_on_late_failures()
        while writer.updates:
            writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 1: "abd"}
    assert writer.machine.is_writable


@pytest.mark.rule("H-5")
def test_during_a_change_and_after_the_end_idle_times_change_nothing() -> None:
    writer = Writer((3, 3, 2), "abc", spares="de")
    writer.append(b"", b"")
    writer.ok("0a 0b")
    writer.timeout("1a")
    writer.timeout("0c")
    writer.machine.act_on_late_failures()
    assert len(writer.updates) == 1

    writer.close()
    writer.machine.act_on_late_failures()

    assert [update.cause for update in writer.updates] == ["ensemble", "close"]


@pytest.mark.parametrize("ids", [(), (0,)], ids=["of nothing", "of an entry"])
def test_a_run_of_acknowledgements_proves_a_bookie_and_an_empty_one_does_not(ids: tuple[int, ...]) -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.timeout("0a")
    writer.metadata_arrives()
    assert list(writer.machine.members.memory.unproven) == ["d"]

    writer.machine.acknowledged("d", ids)

    assert list(writer.machine.members.memory.unproven) == ([] if ids else ["d"])


def test_the_policy_is_told_the_position_and_the_ensemble_so_far() -> None:
    asked = []

    def choose(ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        asked.append(("".join(ensemble), position, "".join(sorted(excluded))))
        return {0: "x", 2: "y"}[position] if len(asked) != 2 else None

    assert replace_failed(LEDGER_ID, tuple("abc"), {2: "c", 0: "a"}, choose, last_resort="y") == tuple("xby")
    assert asked == [("abc", 0, "acy"), ("xbc", 2, "acy"), ("xbc", 2, "ac")]

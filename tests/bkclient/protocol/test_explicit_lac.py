"""Explicit LACs of an idle writer: when one is sent, to which bookies, and how its answers are counted."""

from __future__ import annotations

import pytest

from bkclient.errors import BookKeeperError, Code
from bkclient.protocol.explicit_lac import ExplicitLac, LacWrite
from bkclient.protocol.quorum import QuorumSizes
from scenarios.machines.store import LEDGER_ID
from tests.bkclient.protocol.harness import Writer


class Teller:
    """The explicit LACs of a writer, and their ports."""

    def __init__(self, writer: Writer) -> None:
        self._sent: list[str] = []
        self.finished: list[tuple[int, Code | None]] = []
        self.errors: list[BookKeeperError] = []
        self.machine = ExplicitLac(writer.machine, self)

    def tick(self) -> str:
        """One interval passes; returns what was sent."""
        self.machine.on_tick()
        sent, self._sent = " ".join(self._sent), []
        return sent

    def answer(self, bookies: str, lac: int, code: int = Code.OK) -> None:
        for bookie_id in bookies:
            self.machine.on_write_lac_reply(bookie_id, lac, code)

    def send_write_lac(self, bookie_id: str, last_add_confirmed: int) -> None:
        self._sent.append(f"{last_add_confirmed}{bookie_id}")

    def write_lac_finished(self, last_add_confirmed: int, error: BookKeeperError | None) -> None:
        self.finished.append((last_add_confirmed, error.code if error else None))
        if error is not None:
            self.errors.append(error)


def written(entries: int, sizes: tuple[int, int, int] = (1, 1, 1), ensemble: str = "a") -> Writer:
    writer = Writer(sizes, ensemble)
    for entry_id in range(entries):
        writer.append()
        writer.ok(" ".join(f"{entry_id}{bookie_id}" for bookie_id in ensemble))
    return writer


# When ---------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("LAC-5")
def test_nothing_is_told_of_a_ledger_without_entries() -> None:
    teller = Teller(written(0))

    assert [teller.tick() for _ in range(3)] == ["", "", ""]


@pytest.mark.rule("LAC-5")
def test_the_first_entry_is_told_at_the_first_tick_because_no_entry_tells_it() -> None:
    teller = Teller(written(1))

    assert teller.tick() == "0a"


@pytest.mark.rule("LAC-5")
@pytest.mark.rule("LAC-6")
def test_after_a_burst_the_lac_is_told_at_the_second_tick() -> None:
    teller = Teller(written(10))

    assert [teller.tick(), teller.tick()] == ["", "9a"]
    teller.answer("a", 9)
    assert teller.finished == [(9, None)]
    assert [teller.tick(), teller.tick()] == ["", ""]


@pytest.mark.rule("LAC-5")
def test_while_entries_carry_the_lac_it_is_not_told_besides() -> None:
    writer = written(2)
    teller = Teller(writer)
    sent = []
    for entry_id in range(2, 12, 2):
        sent.append(teller.tick())
        writer.append(b"", b"")
        writer.ok(f"{entry_id}a {entry_id + 1}a")

    assert sent == [""] * 5
    assert [teller.tick(), teller.tick()] == ["", "11a"]


@pytest.mark.rule("LAC-5")
def test_a_writer_of_one_entry_per_interval_has_each_of_them_told() -> None:
    writer = written(1)
    teller = Teller(writer)
    sent = [teller.tick()]
    teller.answer("a", 0)
    for entry_id in (1, 2):
        writer.append()
        writer.ok(f"{entry_id}a")
        sent.append(teller.tick())
        teller.answer("a", entry_id)

    assert sent == ["0a", "1a", "2a"]


@pytest.mark.rule("LAC-6")
def test_no_tick_is_needed_once_readers_can_know_everything() -> None:
    writer = written(1)
    teller = Teller(writer)
    steps = [teller.machine.is_done]
    teller.tick()
    steps.append(teller.machine.is_done)  # under way
    teller.answer("a", 0, Code.TIMEOUT)
    steps.append(teller.machine.is_done)  # failed
    teller.tick()
    teller.answer("a", 0)
    steps.append(teller.machine.is_done)
    writer.append()
    steps.append(teller.machine.is_done)  # pending
    writer.ok("1a")
    steps.append(teller.machine.is_done)
    writer.close()
    steps.append(teller.machine.is_done)

    assert steps == [False, False, False, True, False, False, True]


@pytest.mark.rule("LAC-6")
def test_a_writer_without_entries_needs_no_tick() -> None:
    assert Teller(written(0)).machine.is_done


@pytest.mark.rule("LAC-5")
@pytest.mark.behaviour("T-160")
def test_with_deferred_sync_what_was_forced_is_told() -> None:
    writer = Writer((1, 1, 1), "a", deferred_sync=True)
    teller = Teller(writer)
    writer.append(b"", b"", b"")
    writer.ok("0a 1a 2a")
    assert teller.tick() == ""

    writer.machine.on_forced(1, 0)
    assert teller.tick() == "1a"
    teller.answer("a", 1)
    assert teller.tick() == ""
    writer.append()
    writer.ok("3a")  # it carries the LAC
    writer.machine.on_forced(3, 1)
    writer.machine.on_forced(3, 1)

    assert teller.tick() == "3a"


@pytest.mark.rule("LAC-5")
def test_with_deferred_sync_the_lac_that_an_entry_carried_is_not_told_besides() -> None:
    writer = Writer((1, 1, 1), "a", deferred_sync=True)
    teller = Teller(writer)
    writer.append()
    writer.ok("0a")
    writer.machine.on_forced(0, 1)
    writer.append()
    writer.ok("1a")

    assert [teller.tick(), teller.tick(), teller.tick()] == ["", "", ""]


@pytest.mark.rule("LAC-5")
def test_what_an_entry_told_before_a_force_still_counts_as_told() -> None:
    writer = Writer((1, 1, 1), "a", deferred_sync=True)
    teller = Teller(writer)
    writer.append()
    writer.ok("0a")
    writer.machine.on_forced(0, 1)
    writer.append()
    writer.ok("1a")  # readers know 0
    writer.machine.on_forced(1, 2)

    assert [teller.tick(), teller.tick()] == ["", "1a"]


@pytest.mark.rule("LAC-5")
def test_a_writer_that_has_ended_tells_nothing() -> None:
    writer = written(1)
    teller = Teller(writer)
    writer.close()

    assert teller.tick() == ""


# Which bookies ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("LAC-7")
def test_it_goes_to_the_write_set_of_the_entry_it_names_in_the_present_ensemble() -> None:
    writer = Writer((4, 2, 2), "abcd", spares="e")
    for entry_id, bookies in enumerate(("ab", "bc", "cd")):
        writer.append()
        writer.ok(" ".join(f"{entry_id}{bookie_id}" for bookie_id in bookies))
    writer.append()
    writer.timeout("3d")
    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "abcd", 3: "abce"}
    teller = Teller(writer)

    assert [teller.tick(), teller.tick()] == ["", "2c 2e"]


# Answers ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("LAC-7")
@pytest.mark.behaviour("T-163")
@pytest.mark.parametrize(("sizes", "needed"), [((3, 3, 2), 2), ((3, 3, 3), 3), ((1, 1, 1), 1)])
def test_the_ack_quorum_decides_and_later_answers_are_harmless(sizes: tuple[int, int, int], needed: int) -> None:
    write = LacWrite(QuorumSizes(*sizes), tuple("abc"[: sizes[0]]), 0)

    decided = [write.on_reply(bookie_id, Code.OK) for bookie_id in write.bookies]

    assert decided == [number == needed for number in range(1, sizes[0] + 1)]
    assert not write.on_reply("a", Code.TIMEOUT)
    assert write.code == Code.OK


@pytest.mark.rule("LAC-7")
def test_a_bookie_counts_once_and_a_stranger_not_at_all() -> None:
    write = LacWrite(QuorumSizes(3, 3, 2), tuple("abc"), 0)

    assert [write.on_reply(bookie_id, Code.OK) for bookie_id in "aaz"] == [False, False, False]
    assert write.code is None


@pytest.mark.rule("LAC-8")
@pytest.mark.rule("H-12")
@pytest.mark.parametrize("lac", range(5))
def test_failures_of_a_striped_ledger_are_counted_by_their_place_in_the_ensemble(lac: int) -> None:
    write = LacWrite(QuorumSizes(5, 3, 2), tuple("abcde"), lac)
    first, second, third = write.bookies

    assert not write.on_reply(first, Code.TIMEOUT)
    assert not write.on_reply(first, Code.TIMEOUT)
    assert write.on_reply(second, Code.BOOKIE_NOT_AVAILABLE)
    assert not write.on_reply(third, Code.OK)
    assert write.code == Code.BOOKIE_NOT_AVAILABLE


@pytest.mark.rule("LAC-9")
def test_a_lac_that_could_not_be_told_is_told_again_by_the_next_tick_and_harms_nobody() -> None:
    writer = written(1, (3, 3, 2), "abc")
    teller = Teller(writer)
    assert teller.tick() == "0a 0b 0c"
    teller.answer("ab", 0, Code.TIMEOUT)
    teller.answer("c", 0)

    assert teller.finished == [(0, Code.TIMEOUT)]
    assert (teller.errors[0].ledger_id, teller.errors[0].bookie_id) == (LEDGER_ID, "b")
    assert writer.machine.is_writable
    assert teller.tick() == "0a 0b 0c"


@pytest.mark.rule("LAC-7")
def test_one_lac_is_under_way_at_a_time_and_answers_to_another_are_ignored() -> None:
    writer = written(1)
    teller = Teller(writer)
    assert teller.tick() == "0a"
    writer.append()
    writer.ok("1a")
    assert [teller.tick(), teller.tick()] == ["", ""]

    teller.answer("a", 7)
    assert teller.finished == []
    teller.answer("a", 0)

    assert teller.finished == [(0, None)]
    assert teller.tick() == "1a"


@pytest.mark.rule("LAC-9")
def test_a_lac_whose_outcome_nobody_will_learn_is_told_again_by_the_next_tick() -> None:
    writer = written(1)
    teller = Teller(writer)
    assert teller.tick() == "0a"
    teller.machine.give_up()
    teller.answer("a", 0)

    assert teller.finished == []
    assert teller.tick() == "0a"


def test_a_failure_is_told_with_the_bookie_that_decided_it() -> None:
    teller = Teller(written(2, (3, 3, 2), "abc"))
    teller.tick()
    teller.tick()
    teller.answer("ab", 1, Code.UNAUTHORIZED)
    (error,) = teller.errors
    assert str(error).startswith(
        f"ledger {LEDGER_ID}, bookie b: too few bookies took the explicit LAC 1 [UNAUTHORIZED -102]. "
    )


@pytest.mark.parametrize("ensemble", ["abbc", "bacb"])
def test_a_bookie_that_old_metadata_names_twice_answers_for_each_place(ensemble: str) -> None:
    write = LacWrite(QuorumSizes(4, 4, 3), tuple(ensemble), 0)
    assert not write.on_reply("b", Code.OK)
    assert not write.on_reply("b", Code.TIMEOUT)
    assert not write.on_reply("b", Code.OK), "both places have answered"
    assert not write.on_reply("a", Code.OK)
    assert write.on_reply("c", Code.OK)
    assert write.code == Code.OK


@pytest.mark.parametrize("deferred_sync", [False, True])
def test_readers_know_nothing_of_a_ledger_without_entries(deferred_sync: bool) -> None:
    assert Writer(deferred_sync=deferred_sync).machine.told_lac == -1

"""Fencing and reading with every combination of answers, in every order, against a reference written from the definitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations, product

import pytest

from bkclient.errors import Code
from bkclient.protocol.recovery import EntryVerdict
from tests.bkclient.protocol.harness import Recovery, reading

NEGATIVES = (Code.NO_SUCH_ENTRY, Code.NO_SUCH_LEDGER_ON_BOOKIE)
ERRORS = (Code.TIMEOUT, Code.BOOKIE_NOT_AVAILABLE, Code.DIGEST_MATCH, Code.DATA_UNKNOWN)
AT_ONCE = (Code.UNAUTHORIZED, Code.CLIENT_CLOSED)
REPORTED_AS_SUCH = (Code.TIMEOUT, *AT_ONCE)
SIZES = [(3, 3, 3), (3, 3, 2), (3, 3, 1), (3, 2, 2), (3, 2, 1), (3, 1, 1)]

Answers = Sequence[tuple[str, Code]]


def write_set(sizes: tuple[int, int, int], entry_id: int) -> str:
    return "".join("abc"[(entry_id + i) % 3] for i in range(sizes[1]))


def is_covered(sizes: tuple[int, int, int], known: set[str]) -> bool:
    """No ack quorum of any write set lies among those who are not known."""
    return all(known & set(quorum) for first in range(3) for quorum in combinations(write_set(sizes, first), sizes[2]))


def reported(code: Code) -> Code:
    return code if code in REPORTED_AS_SUCH else Code.LEDGER_RECOVERY


def expected_of_fencing(sizes: tuple[int, int, int], answers: Answers) -> str | Code:
    known: set[str] = set()
    last_error = Code.READ
    for bookie_id, code in answers:
        if code in AT_ONCE:
            return code
        if code == Code.OK or code in NEGATIVES:
            known.add(bookie_id)
            if is_covered(sizes, known):
                return "reading"
        else:
            last_error = code
    return reported(last_error)


@pytest.mark.rule("REC-8")
@pytest.mark.rule("REC-9")
@pytest.mark.rule("REC-10")
@pytest.mark.behaviour("T-126")
@pytest.mark.behaviour("T-138")
@pytest.mark.parametrize("sizes", SIZES)
def test_fencing_ends_as_its_answers_say_whatever_they_are_and_in_whatever_order(sizes: tuple[int, int, int]) -> None:
    seen = set()
    for codes in product((Code.OK, *NEGATIVES, *ERRORS, *AT_ONCE), repeat=3):
        for order in permutations(zip("abc", codes, strict=True)):
            recovery = Recovery(sizes, "abc")
            recovery.start()
            for bookie_id, code in order:
                recovery.machine.on_fence_reply(bookie_id, code, 4, 50) if code == Code.OK else recovery.fenced(
                    bookie_id, code=code
                )
            expected = expected_of_fencing(sizes, order)
            seen.add(expected)
            if expected == "reading":
                assert (recovery.phase, recovery.finished) == ("reading", []), order
            else:
                assert (recovery.phase, recovery.finished) == ("failed", [expected]), order
    assert seen == {"reading", Code.LEDGER_RECOVERY, *REPORTED_AS_SUCH}


def expected_of_reading(sizes: tuple[int, int, int], answers: Answers) -> EntryVerdict | None:
    """None while the answers decide nothing."""
    denied: set[str] = set()
    for bookie_id, code in answers:
        if code == Code.OK:
            return EntryVerdict.POSITIVE
        if code == Code.CLIENT_CLOSED:
            return EntryVerdict.UNKNOWN
        if code in NEGATIVES:
            denied.add(bookie_id)
            if sizes[1] - len(denied) < sizes[2]:
                return EntryVerdict.NEGATIVE
    return EntryVerdict.UNKNOWN if len(answers) == sizes[1] else None


@pytest.mark.rule("REC-18")
@pytest.mark.rule("REC-19")
@pytest.mark.rule("REC-20")
@pytest.mark.rule("REC-21")
@pytest.mark.parametrize("sizes", SIZES)
def test_an_entry_is_decided_as_its_answers_say_after_every_single_one_of_them(sizes: tuple[int, int, int]) -> None:
    bookies = write_set(sizes, 0)
    seen = set()
    for codes in product((Code.OK, *NEGATIVES, *ERRORS, *AT_ONCE), repeat=sizes[1]):
        for order in permutations(zip(bookies, codes, strict=True)):
            recovery = reading(sizes, "abc")
            for count, (bookie_id, code) in enumerate(order, start=1):
                recovery.found(f"0{bookie_id}") if code == Code.OK else recovery.denied(f"0{bookie_id}", code)
                expected = expected_of_reading(sizes, order[:count])
                seen.add(expected)
                decided = [verdict for entry_id, verdict, _ in recovery.decided if entry_id == 0]
                assert decided == ([] if expected is None else [expected]), order[:count]
                assert bool(recovery.finished) == (expected is EntryVerdict.UNKNOWN), order[:count]
    assert seen >= {EntryVerdict.POSITIVE, EntryVerdict.NEGATIVE, EntryVerdict.UNKNOWN}


@pytest.mark.rule("REC-25")
@pytest.mark.rule("REC-28")
@pytest.mark.parametrize("sizes", [(3, 3, 3), (3, 3, 2), (3, 3, 1)])
@pytest.mark.parametrize("spares", ["", "d", "de"])
@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.WRITE_ON_READ_ONLY_BOOKIE, Code.TOO_MANY_REQUESTS, Code.WRITE])
def test_a_write_back_succeeds_exactly_while_an_ack_quorum_of_members_and_spares_takes_it(
    sizes: tuple[int, int, int], spares: str, code: Code
) -> None:
    """Each bookie, spare or not, takes the entry, refuses it, or never answers."""
    everybody = "abc" + spares
    for takes in product(("takes", "refuses", "hangs"), repeat=len(everybody)):
        behaviour = dict(zip(everybody, takes, strict=True))
        recovery = reading(sizes, "abc", spares=spares)
        recovery.sent()
        recovery.found("0a")
        recovery.denied("1a 1b 1c")
        while asked := [cue[-1] for cue in recovery.sent().split() if cue.startswith("W0")]:
            for bookie_id in asked:
                if behaviour[bookie_id] == "takes":
                    recovery.written(f"0{bookie_id}")
                elif behaviour[bookie_id] == "refuses":
                    recovery.not_written(f"0{bookie_id}", code)

        members = recovery.machine.ensemble
        stored = sum(behaviour[bookie_id] == "takes" for bookie_id in members)
        refusing = [bookie_id for bookie_id in members if behaviour[bookie_id] == "refuses"]
        if stored >= sizes[2]:
            assert len(recovery.updates) == 1, behaviour
            assert recovery.finished == [], behaviour
        elif len(refusing) > 3 - sizes[2]:
            assert recovery.finished == [Code.LEDGER_RECOVERY], behaviour
        else:
            assert (recovery.updates, recovery.finished) == ([], []), behaviour  # it waits for those who hang

"""What tests with real bookies demand of a bookie that was killed: nothing more than it promised, and all of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.interop.held import Held, Promised, add, body_of, is_torn

LEDGER = 1015
#: Two entries were acknowledged, a third was sent.
ENTRIES = 3
TORN = body_of(LEDGER, 2)[:40] + bytes(len(body_of(LEDGER, 2)) - 40)


@pytest.fixture
def promised() -> Promised:
    told = Promised()
    told.sent(add(LEDGER, number) for number in range(ENTRIES))
    told.acknowledged(add(LEDGER, number) for number in range(ENTRIES - 1))
    return told


def held(*found: bytes | str) -> Held:
    """What a bookie answers that has these entries; an add would be taken."""
    last = [each for each in found if isinstance(each, bytes)][-1]
    entries = {(LEDGER, number): each for number, each in enumerate(found)}
    return Held(entries, {LEDGER: ("EOK", b"", last)}, {LEDGER: "EOK"}, "ENOLEDGER")


def bodies(count: int) -> list[bytes]:
    return [body_of(LEDGER, number) for number in range(count)]


@pytest.mark.parametrize("last", [body_of(LEDGER, 2), "ENOENTRY", TORN], ids=["whole", "gone", "torn"])
def test_an_entry_that_was_not_acknowledged_may_be_there_or_gone_or_torn(promised: Promised, last: bytes | str) -> None:
    assert not list(promised.broken_by(held(*bodies(2), last), lacs_fall=False))


def test_an_entry_that_was_acknowledged_is_not_torn(promised: Promised) -> None:
    promised.acknowledged([add(LEDGER, 2)])

    (said,) = promised.broken_by(held(*bodies(2), TORN), lacs_fall=False)

    assert said == f"entry 2 of ledger {LEDGER} is {len(TORN)} other bytes"


def test_an_entry_that_was_never_acknowledged_has_no_other_bytes(promised: Promised) -> None:
    (said,) = promised.broken_by(held(*bodies(2), body_of(LEDGER, 1)), lacs_fall=False)

    assert said.startswith(f"entry 2 of ledger {LEDGER} is ")


def test_the_last_entry_that_a_bookie_tells_is_the_one_that_it_has(promised: Promised) -> None:
    found = replace(held(*bodies(2), TORN), lacs={LEDGER: ("EOK", b"", body_of(LEDGER, 2))})

    (said,) = promised.broken_by(found, lacs_fall=False)

    assert said == f"the last entry of ledger {LEDGER} is not 2, and the answer is EOK"


def test_a_torn_entry_that_was_found_stays_as_it_is(promised: Promised) -> None:
    promised.tried(replace(held(*bodies(2), TORN), next_add={LEDGER: "EFENCED"}))

    assert not [each for each in promised.broken_by(held(*bodies(2), TORN), lacs_fall=False) if "entry" in each]
    (said,) = [each for each in promised.broken_by(held(*bodies(3)), lacs_fall=False) if "entry" in each]
    assert said == f"entry 2 of ledger {LEDGER} is {len(TORN)} other bytes"


def test_zeros_that_belong_to_an_entry_do_not_make_it_torn() -> None:
    assert not is_torn(b"ab\0\0", b"ab\0\0")
    assert not is_torn(b"ab\0", b"abcd")
    assert not is_torn(b"ax\0\0", b"abcd")
    assert not is_torn("ENOENTRY", b"abcd")
    assert is_torn(b"ab\0\0", b"abcd")

"""Names of znodes and bookies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import ArgumentError
from bkclient.metadata.paths import (
    LEDGER_ID_MAX,
    LedgerManager,
    check_bookie_id,
    is_valid_bookie_id,
    ledger_path,
    parse_ledger_path,
    sequence_number,
    under_replicated_ledger_path,
)

FLAT, HIERARCHICAL = LedgerManager.FLAT, LedgerManager.HIERARCHICAL
LONG, LEGACY = LedgerManager.LONG_HIERARCHICAL, LedgerManager.LEGACY_HIERARCHICAL

PATHS = [
    (0, FLAT, "/ledgers/L0000000000"),
    (0, HIERARCHICAL, "/ledgers/00/0000/L0000"),
    (0, LONG, "/ledgers/000/0000/0000/0000/L0000"),
    (1, FLAT, "/ledgers/L0000000001"),
    (1, HIERARCHICAL, "/ledgers/00/0000/L0001"),
    (1, LONG, "/ledgers/000/0000/0000/0000/L0001"),
    (12345, FLAT, "/ledgers/L0000012345"),
    (12345, HIERARCHICAL, "/ledgers/00/0001/L2345"),
    (12345, LEGACY, "/ledgers/00/0001/L2345"),
    (12345, LONG, "/ledgers/000/0000/0000/0001/L2345"),
    (2147483646, FLAT, "/ledgers/L2147483646"),
    (2147483646, HIERARCHICAL, "/ledgers/21/4748/L3646"),
    (2147483646, LONG, "/ledgers/000/0000/0021/4748/L3646"),
    (2147483647, FLAT, "/ledgers/L2147483647"),
    (2147483647, LEGACY, "/ledgers/21/4748/L3647"),
    (2147483647, HIERARCHICAL, "/ledgers/000/0000/0021/4748/L3647"),
    (2147483647, LONG, "/ledgers/000/0000/0021/4748/L3647"),
    (12345678901, HIERARCHICAL, "/ledgers/000/0000/0123/4567/L8901"),
    (12345678901, LONG, "/ledgers/000/0000/0123/4567/L8901"),
    (9223372036854775807, HIERARCHICAL, "/ledgers/922/3372/0368/5477/L5807"),
    (9223372036854775807, LONG, "/ledgers/922/3372/0368/5477/L5807"),
]


@pytest.mark.parametrize(("ledger_id", "manager", "path"), PATHS)
def test_a_ledger_lies_where_its_manager_says(ledger_id: int, manager: LedgerManager, path: str) -> None:
    assert ledger_path("/ledgers", manager, ledger_id) == path
    assert parse_ledger_path("/ledgers", path) == ledger_id


@given(st.sampled_from(LedgerManager), st.integers(0, LEDGER_ID_MAX), st.sampled_from(["", "/ledgers", "/a/b"]))
def test_every_path_leads_back_to_its_ledger(manager: LedgerManager, number: int, root: str) -> None:
    ledger_id = number % (manager.ledger_id_max + 1)
    assert parse_ledger_path(root, ledger_path(root, manager, ledger_id)) == ledger_id


@pytest.mark.parametrize("manager", LedgerManager)
def test_ids_that_the_manager_cannot_name_are_refused(manager: LedgerManager) -> None:
    ledger_path("/ledgers", manager, manager.ledger_id_max)
    for ledger_id in (-1, manager.ledger_id_max + 1):
        with pytest.raises(
            ArgumentError,
            match=f"ledger_id must be between 0 and .* with the {manager.value} ledger manager, got {ledger_id}",
        ):
            ledger_path("/ledgers", manager, ledger_id)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/ledgers",
        "/ledgers/",
        "/other/L0000000001",
        "/ledgers/LAYOUT",
        "/ledgers/0000000001",
        "/ledgers/L000000001",
        "/ledgers/L00000000011",
        "/ledgers/00/L0001",
        "/ledgers/00/0000/0001",
        "/ledgers/000/0000/L0001",
        "/ledgers/00/0000/L000a",
        "/ledgers/00/0000/L0\u0661\u0661\u0661",
        "/ledgers/00/0000/L 001",
        "/ledgers/999/9999/9999/9999/L9999",
        "/ledgers/available/a/L0001",
    ],
)
def test_other_znodes_are_no_ledgers(path: str) -> None:
    with pytest.raises(ValueError, match=r"ledger"):
        parse_ledger_path("/ledgers", path)


def test_an_under_replicated_ledger_is_filed_under_its_hexadecimal_digits() -> None:
    path = "/ledgers/underreplication/ledgers/0000/0002/dfdc/1c35/urL12345678901"
    assert under_replicated_ledger_path("/ledgers", 12345678901) == path
    for ledger_id in (-1, LEDGER_ID_MAX + 1):
        with pytest.raises(ArgumentError):
            under_replicated_ledger_path("/ledgers", ledger_id)


def test_the_counter_of_a_sequential_znode_is_read_back() -> None:
    assert sequence_number("/ledgers/idgen/ID-0000000007", "/ledgers/idgen/ID-") == 7
    assert sequence_number("ID--2147483648", "ID-") == -2147483648
    for path in ("ID-", "ID-x", "XD-1", "ID-1/2", "ID-+1", "ID-" + "1" * 20):
        with pytest.raises(ValueError, match="and a number"):
            sequence_number(path, "ID-")


@pytest.mark.parametrize("bookie_id", ["127.0.0.1:3181", "bookie-1_a.B:1", "a;b<c=d>e?f@g[h\\i]j^k", "readonly1"])
def test_the_characters_of_the_bookie_pattern_are_valid(bookie_id: str) -> None:
    assert is_valid_bookie_id(bookie_id)
    assert check_bookie_id(bookie_id) == bookie_id


@pytest.mark.parametrize(
    "bookie_id", ["", ".", "..", "a/b", "a b", "a\tb", "a\n", "readonly", "ReadOnly", "\u00e9", "a,b"]
)
def test_other_bookie_ids_are_refused(bookie_id: str) -> None:
    assert not is_valid_bookie_id(bookie_id)
    with pytest.raises(ArgumentError, match="not a valid bookie id"):
        check_bookie_id(bookie_id)

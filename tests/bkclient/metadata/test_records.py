"""LAYOUT, bookie registrations and cookies, byte by byte."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import ArgumentError, MetadataSerializationError
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.paths import LedgerManager
from bkclient.metadata.records import (
    BookieServiceInfo,
    Cookie,
    Endpoint,
    decode_cookie,
    decode_layout,
    decode_service_info,
    encode_cookie,
    encode_layout,
    encode_service_info,
    parse_bookie_address,
)

FACTORY = "org.apache.bookkeeper.meta.{}LedgerManagerFactory"


def test_the_layout_of_the_default_manager_is_written_byte_by_byte() -> None:
    assert encode_layout(LedgerManager.HIERARCHICAL).hex() == (
        "320a6f72672e6170616368652e626f6f6b6b65657065722e6d6574612e48696572617263686963616c4c65646765724d616e6167657246616374"
        "6f72793a31"
    )


@pytest.mark.parametrize(
    ("manager", "name"),
    [
        (LedgerManager.FLAT, "Flat"),
        (LedgerManager.HIERARCHICAL, "Hierarchical"),
        (LedgerManager.LONG_HIERARCHICAL, "LongHierarchical"),
        (LedgerManager.LEGACY_HIERARCHICAL, "LegacyHierarchical"),
    ],
)
def test_every_manager_has_its_factory_class(manager: LedgerManager, name: str) -> None:
    layout = f"2\n{FACTORY.format(name)}:1".encode()
    assert encode_layout(manager) == layout
    assert decode_layout(layout) is manager


def test_a_layout_of_the_first_version_names_the_type() -> None:
    assert decode_layout(b"1\nflat:1") is LedgerManager.FLAT
    assert decode_layout(b"1\nhierarchical:1") is LedgerManager.HIERARCHICAL


@pytest.mark.parametrize(
    "layout",
    [
        b"",
        b"2",
        b"2\n",
        b"2\nflat:1",
        b"1\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1",
        b"3\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1",
        b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory",
        b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:2",
        b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1:1",
        b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1\n",
        b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1",
        b"\xff\xfe",
    ],
)
def test_any_other_layout_is_refused(layout: bytes) -> None:
    with pytest.raises(MetadataSerializationError, match="names no ledger manager"):
        decode_layout(layout)


SERVICE_INFO = "32220a06626f6f6b696510ed181a093132372e302e302e31220a626f6f6b69652d727063"


def test_a_registration_lists_endpoints_byte_by_byte() -> None:
    info = BookieServiceInfo.of_address(BookieAddress("127.0.0.1", 3181))
    assert encode_service_info(info).hex() == SERVICE_INFO
    assert decode_service_info("any-id", bytes.fromhex(SERVICE_INFO)) == info


def test_a_registration_tells_what_an_address_offers_beyond_requests_in_clear() -> None:
    address = BookieAddress("127.0.0.1", 3181, ("tls",))
    stored = encode_service_info(BookieServiceInfo.of_address(address))
    assert decode_service_info("any-id", stored).rpc_address() == address


def test_clients_use_the_first_endpoint_of_their_protocol() -> None:
    web = Endpoint("httpserver", "h", 8080, "http")
    first, second = Endpoint("a", "h", 1, "bookie-rpc", ("x",), ("tls",)), Endpoint("b", "h", 2, "bookie-rpc")
    info = BookieServiceInfo((web, first, second), {"k": "v"})
    assert decode_service_info("b", encode_service_info(info)) == info
    assert info.rpc_address() == BookieAddress("h", 1, ("tls",))
    assert BookieServiceInfo((web,)).rpc_address() is None


def test_an_empty_registration_means_that_the_id_is_the_address() -> None:
    assert decode_service_info("host:3181", b"").rpc_address() == BookieAddress("host", 3181)
    with pytest.raises(MetadataSerializationError, match="bookie name"):
        decode_service_info("name", b"")


@pytest.mark.parametrize(
    "bookie_id", ["name", ":1", "host:", "host:0", "host:65536", "host:1:2", "host:-1", "::1:3181"]
)
def test_an_id_that_is_no_address_is_refused(bookie_id: str) -> None:
    with pytest.raises(ArgumentError, match="not host:port"):
        parse_bookie_address(bookie_id)


@given(st.binary(min_size=1, max_size=80))
def test_no_registration_raises_anything_but_a_serialization_error(data: bytes) -> None:
    info = None
    with suppress(MetadataSerializationError):
        info = decode_service_info("b:1", data)
    if info is not None and info != BookieServiceInfo():
        assert decode_service_info("b:1", encode_service_info(info)) == info


COOKIE = Cookie("127.0.0.1:3181", ("/mem/journal",), ("/mem/ledgers",), "0a1b")
COOKIE_TEXT = rb"""5
bookieHost: "127.0.0.1:3181"
journalDir: "/mem/journal"
ledgerDirs: "1\t/mem/ledgers"
instanceId: "0a1b"
"""


def test_a_cookie_is_text_after_its_version() -> None:
    assert encode_cookie(COOKIE) == COOKIE_TEXT
    assert decode_cookie("127.0.0.1:3181", COOKIE_TEXT) == COOKIE
    assert decode_cookie("127.0.0.1:3181", b"4" + COOKIE_TEXT[1:]) == COOKIE


def test_a_cookie_keeps_all_directories() -> None:
    cookie = Cookie("b:1", ("/j1", "/j2"), ("/l1", "/l2"), None, ("/i1", "/i2", "/i3"))
    assert decode_cookie("b:1", encode_cookie(cookie)) == cookie


def test_a_cookie_is_ascii_whatever_its_directories_are_called() -> None:
    cookie = Cookie("b:1", ("/caf\u00e9",), ("/l",))
    assert b'journalDir: "/caf\\303\\251"' in encode_cookie(cookie)
    assert decode_cookie("b:1", encode_cookie(cookie)) == cookie


def test_a_cookie_of_version_3_is_three_lines() -> None:
    assert decode_cookie("b:1", b"3\nb:1\n/j\n2\t/l1\t/l2\n") == Cookie("b:1", ("/j",), ("/l1", "/l2"))


def test_directories_that_a_cookie_cannot_tell_apart_are_refused() -> None:
    for cookie in (Cookie("b:1", ("/a,b",), ("/l",)), Cookie("b:1", ("/j",), ("/a\tb",))):
        with pytest.raises(MetadataSerializationError, match="bookie b:1"):
            encode_cookie(cookie)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"5",
        b"5\n",
        b"2\nb:1\n/j\n1\t/l",
        b"6" + COOKIE_TEXT[1:],
        b"x" + COOKIE_TEXT[1:],
        b"3\nb:1\n/j",
        b"3\nb:1\n/j\n2\t/l",
        COOKIE_TEXT + b"more: 1\n",
        COOKIE_TEXT.replace(rb"1\t", rb"2\t"),
        COOKIE_TEXT + b"\xff",
    ],
)
def test_any_other_cookie_is_refused(data: bytes) -> None:
    with pytest.raises(MetadataSerializationError, match="bookie b:1"):
        decode_cookie("b:1", data)

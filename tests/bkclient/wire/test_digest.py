"""Digest sizes, values and keys, against published check values and the protocol's own vectors."""

from __future__ import annotations

import hashlib
import hmac
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.ledger import DigestType
from bkclient.wire.digest import DIGEST_SIZES, KEY_SIZE, digest_function, mac_key, master_key

#: Passwords, master keys, and keys of HMAC digests.
KEYS = [
    (b"", "850bf1071c5e3d8c24235676f8816ae0cbe2f14f", "347ead6348e936507920c15d2ae8266ac6ce9b49"),
    (b"secret", "e793cbc379107648537183605cd361d3bb789a39", "190c685bae851574f5ab47c960a00c0466f96603"),
]


@pytest.mark.parametrize(("password", "master", "mac"), KEYS)
def test_keys_are_derived_from_the_password_also_when_it_is_empty(password: bytes, master: str, mac: str) -> None:
    assert master_key(password).hex() == master
    assert mac_key(password).hex() == mac
    assert len(master_key(password)) == len(mac_key(password)) == KEY_SIZE


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_every_digest_type_has_the_size_the_packet_layout_reserves(digest_type: DigestType) -> None:
    assert len(digest_function(digest_type, b"pw")(b"head", b"tail")) == DIGEST_SIZES[digest_type]


def test_crc32c_is_the_standard_castagnoli_crc() -> None:
    assert digest_function(DigestType.CRC32C, b"")(b"1234", b"56789").hex() == "e3069283"


def test_crc32_is_widened_to_eight_bytes() -> None:
    assert digest_function(DigestType.CRC32, b"")(b"1234", b"56789").hex() == "00000000cbf43926"


@settings(deadline=None)
@given(head=st.binary(max_size=64), tail=st.binary(max_size=64), password=st.binary(max_size=16))
def test_a_digest_covers_head_then_tail_as_one_stream(head: bytes, tail: bytes, password: bytes) -> None:
    whole = head + tail
    for digest_type in DigestType:
        digest = digest_function(digest_type, password)
        assert digest(head, tail) == digest(whole, b"") == digest(b"", whole)
    assert digest_function(DigestType.CRC32, password)(head, tail) == zlib.crc32(whole).to_bytes(8, "big")
    key = hashlib.sha1(b"mac" + password).digest()
    assert digest_function(DigestType.HMAC, password)(head, tail) == hmac.digest(key, whole, "sha1")


def test_only_the_hmac_digest_depends_on_the_password() -> None:
    differing = [t for t in DigestType if digest_function(t, b"a")(b"h", b"t") != digest_function(t, b"b")(b"h", b"t")]
    assert differing == [DigestType.HMAC]


def test_one_digest_function_gives_the_same_answer_every_time() -> None:
    digest = digest_function(DigestType.HMAC, b"pw")
    assert digest(b"h", b"t") == digest(b"h", b"t")

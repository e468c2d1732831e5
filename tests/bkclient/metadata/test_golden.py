"""Our codecs and paths against znodes that Apache BookKeeper itself made."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bkclient.errors import ArgumentError
from bkclient.ledger import DigestType, LedgerMetadata, LedgerState
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.codec import decode_ledger_metadata, encode_ledger_metadata
from bkclient.metadata.paths import (
    LedgerManager,
    ledger_path,
    parse_ledger_path,
    sequence_number,
    under_replicated_ledger_path,
)
from bkclient.metadata.records import (
    decode_cookie,
    decode_layout,
    decode_service_info,
    encode_cookie,
    encode_layout,
    encode_service_info,
)
from bkclient.repair.underreplication.formats import (
    check_layout,
    decode_check_time,
    decode_delay,
    decode_holder,
    decode_mark,
    decode_vote,
    encode_check_time,
    encode_holder,
    encode_mark,
    encode_vote,
)
from bkclient.repair.underreplication.formats import encode_layout as encode_layout_of_marks
from tests.bkclient.metadata.golden_files import (
    INSTANCE_ID,
    MACHINE,
    TIME_MS,
    Golden,
    Scene,
    Znode,
    golden_files,
    without_chance,
)

FILES = golden_files()
LAYOUTS = [LedgerManager.FLAT, LedgerManager.HIERARCHICAL, LedgerManager.LONG_HIERARCHICAL]
IDS = {0, 1, 12345, 2147483646, 2147483647, 12345678901, 9223372036854775807}
RAW = bytes(range(7, 14)) + b"\x00\x1b\"'\\? caf\xc3\xa9 \x7f\x80\xff"
OPEN, IN_RECOVERY, CLOSED = LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED

each_version = pytest.mark.parametrize("golden", FILES, ids=lambda golden: golden.version)
each_layout = pytest.mark.parametrize("manager", LAYOUTS, ids=lambda manager: manager.value)


def spelled(data: bytes, version: str) -> bytes:
    """The text format as a version of BookKeeper writes it, which has names for some characters that we write as numbers."""
    named = {b"010": b"b", b"014": b"f"}
    if version.startswith("4.17."):
        named |= {b"007": b"a", b"013": b"v"}
    for number, name in named.items():
        data = data.replace(b"\\" + number, b"\\" + name)
    return data


def test_two_versions_were_captured_and_differ_in_how_they_spell_two_characters() -> None:
    older, newer = FILES

    assert (older.version, newer.version) == ("4.17.3", "4.18.0")
    assert len(newer.scenes) >= 55
    assert newer.scenes.keys() == older.scenes.keys()
    as_older = {
        name: {path: replace(znode, data=spelled(znode.data, older.version)) for path, znode in scene.items()}
        for name, scene in newer.scenes.items()
    }
    assert as_older == older.scenes
    assert {name for name, scene in newer.scenes.items() if scene != older.scenes[name]} == {
        "metadata 2, DUMMY and a password that is no text",
        "metadata 2, custom metadata",
    }


# ---- paths ----------------------------------------------------------------------------------------------------------


def ledgers_of(scene: Scene) -> list[str]:
    return [path for path in scene if path.rpartition("/")[2].startswith("L")]


@each_version
@each_layout
def test_a_ledger_lies_where_java_puts_it(golden: Golden, manager: LedgerManager) -> None:
    paths = ledgers_of(golden.scenes[f"ledgers, {manager.value}"])

    named = {ledger_id for ledger_id in IDS if ledger_id <= manager.ledger_id_max}
    known = {path for path in paths if len(path) <= len("/L0000000000") or manager is not LedgerManager.FLAT}

    assert {ledger_path("", manager, ledger_id) for ledger_id in named} == known
    assert {parse_ledger_path("", path) for path in known} == named
    assert {int(re.sub("[^0-9]", "", path)) for path in paths} == IDS


@each_version
def test_flat_names_of_more_than_ten_digits_are_java_s_alone(golden: Golden) -> None:
    longer = [path for path in ledgers_of(golden.scenes["ledgers, flat"]) if len(path) > len("/L0000000000")]

    assert longer == ["/L12345678901", "/L9223372036854775807"]
    for path in longer:
        with pytest.raises(ValueError, match="not a ledger"):
            parse_ledger_path("", path)
        with pytest.raises(ArgumentError):
            ledger_path("", LedgerManager.FLAT, int(path[2:]))


@each_version
def test_a_mark_lies_where_java_puts_it(golden: Golden) -> None:
    marks = {path for path in golden.scenes["marks"] if "urL" in path}

    assert {under_replicated_ledger_path("", ledger_id) for ledger_id in IDS} == marks


@each_version
@pytest.mark.parametrize(
    ("manager", "prefix"), [(LAYOUTS[0], "/ID-"), (LAYOUTS[1], "/idgen/ID-"), (LAYOUTS[2], "/idgen/ID-")]
)
def test_a_short_id_is_the_number_of_the_znode_that_gave_it(
    golden: Golden, manager: LedgerManager, prefix: str
) -> None:
    scene = golden.scenes[f"short ids, {manager.value}"]
    ids = [parse_ledger_path("", path) for path in ledgers_of(scene)]

    numbers = [sequence_number(path, prefix) for path, znode in scene.items() if znode.is_ephemeral]

    assert len(numbers) == 2
    assert numbers == sorted(ids)[1:]


@each_version
@each_layout
def test_a_long_id_is_made_of_two_halves(golden: Golden, manager: LedgerManager) -> None:
    if manager is LedgerManager.FLAT:
        assert not any(name.startswith("long ids") and name.endswith("flat") for name in golden.scenes)
        return
    scene = golden.scenes[f"long ids, {manager.value}"]
    (low,) = (path for path in scene if path.startswith("/idgen-long/HOB-0000000001/ID-"))

    numbers = {parse_ledger_path("", path) for path in ledgers_of(scene)}

    assert {ledger_id for ledger_id in numbers if ledger_id >= 2**32} == {
        1 << 32,
        1 << 32 | sequence_number(low, "/idgen-long/HOB-0000000001/ID-"),
    }


# ---- metadata -------------------------------------------------------------------------------------------------------


METADATA = [
    pytest.param(golden, name, id=f"{golden.version}-{name}")
    for golden in FILES
    for name in golden.scenes
    if name.startswith("metadata ")
]


@pytest.mark.rule("MD-1")
@pytest.mark.parametrize(("golden", "name"), METADATA)
def test_metadata_of_java_s_are_read_and_written_byte_by_byte(golden: Golden, name: str) -> None:
    ((path, znode),) = golden.scenes[name].items()

    metadata = decode_ledger_metadata(parse_ledger_path("", path), znode.data)

    assert spelled(encode_ledger_metadata(metadata), golden.version) == znode.data
    assert metadata.format_version == int(name.split()[1].rstrip(","))


#: What a scene left: state, last entry, length, first entries of fragments, version of the znode.
STORIES: dict[str, tuple[LedgerState, int, int, tuple[int, ...], int]] = {
    "open": (OPEN, -1, 0, (0,), 0),
    "in recovery": (IN_RECOVERY, -1, 0, (0,), 1),
    "closed and empty": (CLOSED, -1, 0, (0,), 1),
    "closed": (CLOSED, 1, 12, (0,), 1),
    "recovered": (CLOSED, 1, 12, (0,), 2),
    "another ensemble": (OPEN, -1, 0, (0, 2), 1),
    "another ensemble, closed": (CLOSED, 2, 28, (0, 2), 2),
}


def read(golden: Golden, name: str) -> tuple[LedgerMetadata, int]:
    ((path, znode),) = golden.scenes[name].items()
    return decode_ledger_metadata(parse_ledger_path("", path), znode.data), znode.version


@each_version
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("name", STORIES)
def test_what_java_did_to_a_ledger_is_understood(golden: Golden, name: str, version: int) -> None:
    metadata, znode_version = read(golden, f"metadata {version}, {name}")

    assert STORIES[name] == (
        metadata.state,
        metadata.last_entry_id,
        metadata.length,
        tuple(fragment.first_entry_id for fragment in metadata.fragments),
        znode_version,
    )
    assert (metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size) == (3, 2, 2)


@each_version
@pytest.mark.parametrize("version", [2, 3])
def test_what_java_was_asked_for_is_understood(golden: Golden, version: int) -> None:
    def option(name: str) -> LedgerMetadata:
        return read(golden, f"metadata {version}, {name}")[0]

    assert option("open").digest_type is DigestType.CRC32C
    assert option("CRC32").digest_type is DigestType.CRC32
    mac, dummy = option("MAC and a password"), option("DUMMY and a password that is no text")
    assert (mac.digest_type, mac.password) == (DigestType.HMAC, b"secret")
    assert (dummy.digest_type, dummy.password) == (DigestType.DUMMY, b"secret " + RAW)
    assert option("custom metadata").custom_metadata == {"app": b"py", "": b"", "caf\u00e9 \"'\\\n": RAW}
    assert option("creation time").ctime_ms == option("creation time, closed").ctime_ms == TIME_MS
    assert option("closed").ctime_ms is None


@each_version
def test_java_loses_in_format_1_what_that_cannot_hold(golden: Golden) -> None:
    plain = read(golden, "metadata 1, open")[0]

    for name in ("CRC32", "MAC and a password", "custom metadata", "creation time"):
        metadata = read(golden, f"metadata 1, {name}")[0]
        assert metadata == decode_ledger_metadata(metadata.ledger_id, encode_ledger_metadata(plain))


@pytest.mark.rule("API-6")
@each_version
def test_java_s_rewrites_lose_the_creator_token(golden: Golden) -> None:
    assert read(golden, "metadata 3, open")[0].creator_token != 0
    for name in ("in recovery", "closed", "recovered", "another ensemble"):
        assert read(golden, f"metadata 3, {name}")[0].creator_token == 0


# ---- the other records ----------------------------------------------------------------------------------------------


@each_version
@each_layout
def test_the_layout_is_read_and_written_byte_by_byte(golden: Golden, manager: LedgerManager) -> None:
    data = golden.scenes[f"new cluster, {manager.value}"]["/LAYOUT"].data

    assert decode_layout(data) is manager
    assert encode_layout(manager) == data


@each_version
def test_registrations_are_read_and_written_byte_by_byte(golden: Golden) -> None:
    scene = golden.scenes["bookies"]
    paths = [path for path, znode in scene.items() if path.startswith("/available/") and znode.is_ephemeral]

    assert [path.rpartition("/")[2] for path in paths] == [f"127.0.0.1:{port}" for port in (3181, 3182, 3183)]
    for path in paths:
        info = decode_service_info(path.rpartition("/")[2], scene[path].data)
        assert info.rpc_address() == BookieAddress("127.0.0.1", 3181)
        assert [endpoint.endpoint_id for endpoint in info.endpoints] == ["bookie"]
        assert encode_service_info(info) == scene[path].data


@each_version
def test_cookies_are_read_and_written_byte_by_byte(golden: Golden) -> None:
    cookies = {path: znode.data for path, znode in golden.scenes["bookies"].items() if path.startswith("/cookies/")}

    assert len(cookies) == 3
    for number, (path, data) in enumerate(cookies.items()):
        bookie_id = path.removeprefix("/cookies/")
        cookie = decode_cookie(bookie_id, data)
        assert (cookie.bookie_host, cookie.instance_id, cookie.index_dirs) == (bookie_id, INSTANCE_ID, None)
        assert cookie.journal_dirs == (f"/bookie-{number}/journal",)
        assert cookie.ledger_dirs == (f"/bookie-{number}/ledgers",)
        assert encode_cookie(cookie) == data


@each_version
def test_the_records_of_auto_recovery_are_read_and_written_byte_by_byte(golden: Golden) -> None:
    records = {
        path.removeprefix("/underreplication/"): znode.data for path, znode in golden.scenes["auto-recovery"].items()
    }

    check_layout(records["LAYOUT"])
    assert encode_layout_of_marks() == records["LAYOUT"]
    mark, lock = records["ledgers/0000/0000/0000/0000/urL0000000000"], records["locks/urL0000000000"]
    assert decode_mark(mark) == (("127.0.0.1:3182",), TIME_MS)
    assert encode_mark(("127.0.0.1:3182",), TIME_MS) == mark
    assert decode_holder(lock) == MACHINE
    assert encode_holder(MACHINE) == lock == golden.scenes["lock"]["/underreplication/locks/urL"].data
    for vote in (records["auditorelection/V_0000000000"], records["auditorelection"]):
        assert decode_vote(vote) == "127.0.0.1:3181"
        assert encode_vote("127.0.0.1:3181") == vote
    for name in ("checkallledgersctime", "placementpolicycheckctime", "replicascheckctime"):
        assert decode_check_time(records[name]) == TIME_MS
        assert encode_check_time(TIME_MS) == records[name]
    assert decode_delay(records["lostBookieRecoveryDelay"]) == 44
    assert records["disable"] == b""


@each_version
def test_a_mark_may_have_several_bookies_and_no_time(golden: Golden) -> None:
    several = golden.scenes["marks"][under_replicated_ledger_path("", 12345678901)].data
    (timeless,) = golden.scenes["a mark without its time"].values()

    assert decode_mark(several) == (("10.0.0.1:3181", "10.0.0.2:3181"), TIME_MS)
    assert encode_mark(("10.0.0.1:3181", "10.0.0.2:3181"), TIME_MS) == several
    assert decode_mark(timeless.data) == (("127.0.0.1:3182",), None)
    assert encode_mark(("127.0.0.1:3182",), None) == timeless.data


# ---- what is chance, and what is not --------------------------------------------------------------------------------

HEADER = b"BookieMetadataFormatVersion\t3\n"
LEDGER = "/00/0000/L0001"
VOTE = b'bookieId: "%s"\n'


def message(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return HEADER + bytes([len(body)]) + body


def plain(path: str, data: bytes) -> bytes:
    (znode,) = without_chance({path: Znode(data)}, {"10.0.0.9:1": "127.0.0.1:3181"}).values()
    return znode.data


@pytest.mark.parametrize(
    ("path", "data", "instead"),
    [
        ("/INSTANCEID", b"0a1b2c3d-0000-4000-9000-0123456789ab", INSTANCE_ID.encode()),
        (LEDGER, message(b"\x60\xff\xff\xff\x07"), message(b"\x60\x2a")),
        (LEDGER, message(b"\x60\x07\x50\x01"), message(b"\x60\x2a\x50\x80\xd0\x95\xff\xbc\x31")),
        (LEDGER, HEADER[:-2] + b"2\nx\nctime: 1234567890123\n", HEADER[:-2] + b"2\nx\nctime: 1700000000000\n"),
        (
            LEDGER,
            HEADER[:-2] + b"1\n0\t127.0.0.1:3184\t127.0.0.1:3182",
            HEADER[:-2] + b"1\n0\t127.0.0.1:3181\t127.0.0.1:3182",
        ),
        ("/available/b", b"\x32\x03\x10\x81\x01", b"\x32\x03\x10\xed\x18"),
        ("/cookies/b", b'5\nbookieHost: "10.0.0.9:1"\n', b'5\nbookieHost: "127.0.0.1:3181"\n'),
        ("/underreplication/locks/urL1", VOTE % b"somebody", VOTE % MACHINE.encode()),
        ("/underreplication/auditorelection/V_1", VOTE % b"10.0.0.9:1", VOTE % b"127.0.0.1:3181"),
        ("/underreplication/replicascheckctime", b"\x08\x01", b"\x08\x80\xd0\x95\xff\xbc\x31"),
    ],
)
def test_chance_is_replaced(path: str, data: bytes, instead: bytes) -> None:
    assert plain(path, data) == instead != data


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (LEDGER, message(b"\x60\x00")),
        (LEDGER, message(b"\x08\x02\x28\x01\x18\x00")),
        (LEDGER, message(b"\x32\x02\x10\x07", b"\x42\x00")),
        (LEDGER, HEADER[:-2] + b"2\nctime2: 1234567890123\nctime: 123\n"),
        ("/available/b", b"\x32\x02\x20\x07\x10\x07"),
        ("/underreplication/lostBookieRecoveryDelay", b"44"),
        ("/underreplication/locks/urL1", b""),
        ("/LAYOUT", b"2\nsomething:1"),
    ],
)
def test_everything_else_is_kept(path: str, data: bytes) -> None:
    assert plain(path, data) == data


def test_a_message_that_no_znode_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="wire type 5"):
        plain(LEDGER, message(b"\x0d\x00\x00\x00\x00"))


@pytest.mark.parametrize("golden", FILES, ids=lambda golden: golden.version)
def test_a_change_of_a_captured_byte_is_noticed(golden: Golden) -> None:
    """Without this a comparison after too much was replaced could not fail."""

    def noticed(path: str, data: bytes) -> list[int]:
        """The bytes whose change is left after chance was replaced; one that breaks a message is noticed too."""
        found = []
        for at in range(len(data)):
            changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            try:
                is_left = plain(path, changed) != data
            except (ValueError, IndexError):
                is_left = True
            if is_left:
                found.append(at)
        return found

    for scene in golden.scenes.values():
        assert without_chance(scene, {}) == scene
    metadata = golden.scenes["metadata 3, open"]["/00/0000/L0001"].data
    # Its creator token, and the port of each of its three bookies where that still is one of ours.
    replaced = set(range(len(metadata))) - set(noticed("/00/0000/L0001", metadata))
    assert len(metadata) - 1 in replaced
    assert len(replaced) <= 1 + 3 * 2
    layout = golden.scenes["new cluster, flat"]["/LAYOUT"].data
    assert noticed("/LAYOUT", layout) == [*range(len(layout))]

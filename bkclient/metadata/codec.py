"""The stored form of a ledger's metadata: three formats behind one header.

The value is a header line, ``BookieMetadataFormatVersion``, TAB, a number, LF, and a payload: lines of text (1),
protobuf text (2), or a varint length and binary protobuf (3, the default). All are read; a value is written in the
version it carries, so a ledger keeps the format it was created with.

Two properties matter more than leniency. **Nothing is lost:** what a format cannot hold is refused when encoding, and
fields of a newer writer survive a rewrite. **Nothing is guessed:** data that does not say one definite thing (no end
for a closed ledger, bytes after the payload, an unknown digest type) raises
:class:`~bkclient.errors.MetadataSerializationError`, which names the ledger; a wrong guess here could end a ledger
short of acknowledged entries.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from bkclient.errors import MetadataSerializationError
from bkclient.ledger import BookieId, DigestType, Fragment, LedgerMetadata, LedgerState
from bkclient.metadata.paths import is_valid_bookie_id, shortened
from bkclient.wire.metadata_pb2 import LedgerMetadataFormat

__all__ = [
    "ENSEMBLE_SIZE_MAX",
    "FORMAT_VERSION_DEFAULT",
    "LEDGER_METADATA_BYTES_MAX",
    "decode_ledger_metadata",
    "encode_ledger_metadata",
]

FORMAT_VERSION_DEFAULT: Final = 3

LEDGER_METADATA_BYTES_MAX: Final = 0xFFFFF - 4096
"""A ZooKeeper server cuts the connection on packets above ``jute.maxbuffer``, 1048575 bytes unless configured. A value
near that size would look like a connection that is lost at every attempt, so it is refused before it is sent; 4096
bytes are left for the path and the headers of the request."""

ENSEMBLE_SIZE_MAX: Final = 1000
"""Bookies of one ensemble. BookKeeper sets no limit, and ensembles have a handful of bookies; but every one of them is asked
when a ledger is recovered, so a value that names tens of thousands would keep a client busy for minutes."""

_HEADER: Final = re.compile(rb"BookieMetadataFormatVersion\t([0-9]{1,9})\n")
_IN_RECOVERY_MARK: Final = -102
_CLOSED_WORD: Final = "CLOSED"
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_VARINT_BYTES_MAX: Final = 5

MalformedError = (
    DecodeError,
    EncodeError,
    text_format.ParseError,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
)
"""What protobuf and the model raise about bad values. ``UnicodeDecodeError`` is a ``ValueError``."""


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """The stored form of ``metadata``, in the format version it carries (MD-1).

    :class:`~bkclient.errors.MetadataSerializationError` if that format cannot hold the value: an unknown version, a
    bookie id that is not valid, a bookie that is named twice by a fragment, more than :data:`ENSEMBLE_SIZE_MAX` bookies in
    one, numbers out of range, more than :data:`LEDGER_METADATA_BYTES_MAX` bytes, or, for
    format 1, a password, custom metadata, a creation time or an ack quorum of its own. Formats 1 and 2 leave out the
    creator token, which only format 3 has (API-6).
    """
    try:
        _check_fragments(metadata)
        payload = _encode_payload(metadata)
    except MalformedError as error:
        raise MetadataSerializationError(f"cannot encode metadata: {error}", ledger_id=metadata.ledger_id) from error
    data = b"BookieMetadataFormatVersion\t%d\n%s" % (metadata.format_version, payload)
    if len(data) > LEDGER_METADATA_BYTES_MAX:
        raise MetadataSerializationError(
            f"metadata of {len(data)} bytes, the limit is {LEDGER_METADATA_BYTES_MAX}", ledger_id=metadata.ledger_id
        )
    return data


def decode_ledger_metadata(ledger_id: int, data: bytes) -> LedgerMetadata:
    """The metadata that ``data`` holds for ``ledger_id``, which is not part of it (MD-1).

    :class:`~bkclient.errors.MetadataSerializationError`, naming the ledger, if ``data`` is malformed.
    """
    header = _HEADER.match(data)
    if header is None:
        raise MetadataSerializationError("metadata without a format header", ledger_id=ledger_id)
    version, payload = int(header[1]), data[header.end() :]
    try:
        match version:
            case 1:
                return _decode_lines(ledger_id, payload.decode())
            case 2:
                return _from_message(ledger_id, version, text_format.Parse(payload.decode(), LedgerMetadataFormat()))
            case 3:
                return _from_message(ledger_id, version, _parse_delimited(payload))
    except MalformedError as error:
        raise MetadataSerializationError(
            f"malformed metadata of format {version}: {error}", ledger_id=ledger_id
        ) from error
    raise MetadataSerializationError(f"metadata format {version} is unknown, 1 to 3 are known", ledger_id=ledger_id)


def _check_fragments(metadata: LedgerMetadata) -> None:
    size = metadata.ensemble_size
    if size > ENSEMBLE_SIZE_MAX:
        raise ValueError(f"an ensemble of {size} bookies, the limit is {ENSEMBLE_SIZE_MAX}")
    for bookie_id in {bookie_id for fragment in metadata.fragments for bookie_id in fragment.ensemble}:
        if not is_valid_bookie_id(bookie_id):
            raise ValueError(f"a fragment names {shortened(bookie_id)}, which is not a bookie id")
    for fragment in metadata.fragments:
        if len(set(fragment.ensemble)) < size:
            raise ValueError(f"fragment {fragment.first_entry_id} names a bookie twice")


def _encode_payload(metadata: LedgerMetadata) -> bytes:
    match metadata.format_version:
        case 1:
            return _encode_lines(metadata).encode()
        case 2:
            if metadata.unknown_fields:
                raise ValueError("format 2 cannot hold fields of a newer writer")
            message = _to_message(metadata)
            message.ClearField("cToken")
            return text_format.MessageToString(message, as_utf8=False).encode()  # numbers, as BookKeeper writes them
        case 3:
            message = _to_message(metadata)
            body = message.SerializeToString(deterministic=True) + metadata.unknown_fields
            return _encode_varint(len(body)) + body
    raise ValueError(f"format {metadata.format_version} is unknown, 1 to 3 are known")


# ---- formats 2 and 3: one message -----------------------------------------------------------------------------------


def _to_message(metadata: LedgerMetadata) -> LedgerMetadataFormat:
    digest_type = LedgerMetadataFormat.DigestType.Name(metadata.digest_type) if metadata.digest_type else None
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum_size,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=metadata.last_entry_id,
        state=LedgerMetadataFormat.State.Name(metadata.state),
        ackQuorumSize=metadata.ack_quorum_size,
        cToken=metadata.creator_token,
        digestType=digest_type,
        password=metadata.password if metadata.has_password else None,
    )
    for fragment in metadata.fragments:
        message.segment.add(ensembleMember=fragment.ensemble, firstEntryId=fragment.first_entry_id)
    if metadata.ctime_ms is not None:
        message.ctime = metadata.ctime_ms
    for key, value in metadata.custom_metadata.items():
        message.customMetadata.add(key=key, value=value)
    return message


def _from_message(ledger_id: int, version: int, message: LedgerMetadataFormat) -> LedgerMetadata:
    if not message.IsInitialized():
        raise ValueError("a required field is missing")
    state = LedgerState(message.state)
    is_closed = state is LedgerState.CLOSED
    if is_closed and not message.HasField("lastEntryId"):
        raise ValueError("closed without a last entry id")
    return _checked(
        LedgerMetadata(
            ledger_id=ledger_id,
            ensemble_size=message.ensembleSize,
            write_quorum_size=message.quorumSize,
            ack_quorum_size=message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize,
            fragments=_ordered([Fragment(part.firstEntryId, _shared(part.ensembleMember)) for part in message.segment]),
            state=state,
            last_entry_id=message.lastEntryId if is_closed else -1,
            length=message.length if is_closed else 0,
            digest_type=_digest_type(message),
            password=message.password,
            has_password=message.HasField("password"),
            custom_metadata={entry.key: entry.value for entry in message.customMetadata},
            format_version=version,
            ctime_ms=message.ctime if message.HasField("ctime") else None,
            creator_token=message.cToken,
            unknown_fields=_unknown_fields(message),
        )
    )


def _shared(bookies: Iterable[str]) -> tuple[BookieId, ...]:
    """An ensemble whose names are those of all others: a client with many ledgers has one string for each bookie."""
    return tuple(map(sys.intern, bookies))


def _digest_type(message: LedgerMetadataFormat) -> DigestType | None:
    """The digest type, which only counts beside a password; CRC32, protobuf's default, if only a password is stored."""
    if not message.HasField("password"):
        return None
    # A number outside the enumeration ends up among the unknown fields, as if the field were absent.
    number = LedgerMetadataFormat.DIGESTTYPE_FIELD_NUMBER
    unknown = UnknownFieldSet(message)
    for index in range(len(unknown)):
        if unknown[index].field_number == number:
            raise ValueError(f"digest type {unknown[index].data} is unknown")
    return DigestType(message.digestType)


def _unknown_fields(message: LedgerMetadataFormat) -> bytes:
    rest = LedgerMetadataFormat()
    rest.CopyFrom(message)
    for known in LedgerMetadataFormat.DESCRIPTOR.fields:
        rest.ClearField(known.name)
    return rest.SerializePartialToString(deterministic=True)


def _ordered(fragments: list[Fragment]) -> tuple[Fragment, ...]:
    """In ascending order, which the stored list need not have; equal starts are left for the model to refuse."""
    return tuple(sorted(fragments, key=lambda fragment: fragment.first_entry_id))


def _checked(metadata: LedgerMetadata) -> LedgerMetadata:
    _check_fragments(metadata)
    if not all(isinstance(key, str) for key in metadata.custom_metadata):
        # The binding hands out a string that is not UTF-8 as bytes instead of refusing it.
        raise ValueError("a key of the custom metadata is not UTF-8")
    if metadata.creator_token < 0:
        raise ValueError(f"negative creator token {metadata.creator_token}")
    return metadata


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _parse_delimited(payload: bytes) -> LedgerMetadataFormat:
    length = 0
    for index, byte in enumerate(payload[:_VARINT_BYTES_MAX]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            body = payload[index + 1 :]
            break
    else:
        raise ValueError("no length before the message")
    if len(body) != length:
        raise ValueError(f"a message of {length} bytes was announced, {len(body)} follow")
    message = LedgerMetadataFormat()
    message.ParseFromString(body)
    return message


# ---- format 1: lines ------------------------------------------------------------------------------------------------


def _encode_lines(metadata: LedgerMetadata) -> str:
    held = (
        metadata.has_password,
        bool(metadata.custom_metadata),
        metadata.ctime_ms is not None,
        metadata.unknown_fields,
    )
    if any(held) or metadata.ack_quorum_size != metadata.write_quorum_size:
        raise ValueError("format 1 holds neither password nor digest, custom metadata, creation time or ack quorum")
    lines = [str(metadata.write_quorum_size), str(metadata.ensemble_size), str(metadata.length)]
    lines += ["\t".join((str(part.first_entry_id), *part.ensemble)) for part in metadata.fragments]
    if metadata.state is LedgerState.CLOSED:
        lines.append(f"{metadata.last_entry_id}\t{_CLOSED_WORD}")
    elif metadata.state is LedgerState.IN_RECOVERY:
        lines.append(f"{_IN_RECOVERY_MARK}\t{_CLOSED_WORD}")
    # Whatever tells of an end is the last line and is left open; fragments are not.
    return "\n".join(lines) + ("\n" if metadata.state is LedgerState.OPEN else "")


def _decode_lines(ledger_id: int, text: str) -> LedgerMetadata:
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 4:
        raise ValueError(f"{len(lines)} lines, at least 4 are needed")
    write_quorum_size, ensemble_size, length = (_integer(line) for line in lines[:3])
    state, last_entry_id = LedgerState.OPEN, -1
    if lines[-1].endswith(f"\t{_CLOSED_WORD}"):
        end = _integer(lines.pop().removesuffix(f"\t{_CLOSED_WORD}"))
        if end == _IN_RECOVERY_MARK:
            state = LedgerState.IN_RECOVERY
        else:
            state, last_entry_id = LedgerState.CLOSED, end
    rows = [line.split("\t") for line in lines[3:]]
    return _checked(
        LedgerMetadata(
            ledger_id=ledger_id,
            ensemble_size=ensemble_size,
            write_quorum_size=write_quorum_size,
            ack_quorum_size=write_quorum_size,
            fragments=_ordered([Fragment(_integer(row[0]), _shared(row[1:])) for row in rows]),
            state=state,
            last_entry_id=last_entry_id,
            length=length if state is LedgerState.CLOSED else 0,
            digest_type=None,
            has_password=False,
            format_version=1,
        )
    )


def _integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} where a number is expected")
    return int(text)

"""Endpoints about ledgers, as the metadata store and the bookies have them."""

from __future__ import annotations

import base64
from http import HTTPStatus
from typing import Any, Final

from bkclient.errors import ArgumentError, NoSuchLedger
from bkclient.ledger import LedgerMetadata, Versioned
from bkclient.metadata.codec import encode_ledger_metadata
from simbookie.admin.answers import BadBody, json_answer, sentence
from simbookie.admin.endpoints import Administered, Answer
from simbookie.admin.http_server import HttpRequest, HttpResponse

__all__ = ["LEDGER_ANSWERS"]

_PAGE_LEDGERS: Final = 100
_PAGE_ENTRIES: Final = 1000
#: Ledgers whose metadata one answer holds.
LISTED_METADATA_MAX: Final = 10_000
#: Bytes of entries in one answer.
READ_BYTES_MAX: Final = 64 << 20
_NAMES: Final = {1: "CRC32", 2: "MAC", 3: "CRC32C", 4: "DUMMY"}


def _number(request: HttpRequest, name: str, default: int) -> int:
    text = request.params.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise BadBody(f"{name} must be a number, got {text!r}") from None


async def delete(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Delete a ledger's metadata; bookies find out by themselves."""
    if request.method != "DELETE":
        return sentence(HTTPStatus.NOT_FOUND, "Not found method. Should be DELETE method")
    if "ledger_id" not in request.params:
        return sentence(HTTPStatus.NOT_FOUND, "Not ledger found. Should provide ledger_id=<id>")
    ledger_id = _number(request, "ledger_id", -1)
    try:
        await subject.metadata.delete_ledger(ledger_id)
    except ArgumentError as error:
        raise BadBody(str(error)) from None
    return json_answer(f"Deleted ledger: {ledger_id}")


async def list_ledgers(subject: Administered, request: HttpRequest) -> HttpResponse:
    """The ids of all ledgers; on request with their metadata, all of them or a page of a hundred."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, "Not found method. Should be GET method")
    prints = request.params.get("print_metadata") == "true"
    decodes = request.params.get("decode_meta") == "true"
    page = _number(request, "page", -1) if prints else -1
    # of the first page BookKeeper leaves out the last one, as it counts from 0 there and from 1 elsewhere
    first = (page - 1) * _PAGE_LEDGERS if page > 0 else 0
    last = first + _PAGE_LEDGERS - 1 if page > 0 else None
    found: dict[str, Any] = {}
    index = 0
    async for ledger_id in subject.metadata.list_ledgers():
        index += 1
        if not prints:
            found[str(ledger_id)] = None
        elif last is None or first <= index <= last:
            if len(found) >= LISTED_METADATA_MAX:
                raise BadBody(f"there are more than {LISTED_METADATA_MAX} ledgers; ask for pages")
            try:
                found[str(ledger_id)] = _shown(await subject.metadata.read_ledger(ledger_id), decodes=decodes)
            except NoSuchLedger:
                continue
    return json_answer(found)


def _shown(value: Versioned, *, decodes: bool) -> Any:
    if not decodes:
        return encode_ledger_metadata(value.metadata).decode("utf-8", "replace")
    return _members(value)


def _members(value: Versioned) -> dict[str, Any]:
    """What BookKeeper tells of a ledger, its password in base 64 included."""
    metadata: LedgerMetadata = value.metadata
    ctime_ms = metadata.ctime_ms if metadata.ctime_ms is not None else value.created_ms
    return {
        "ledgerId": metadata.ledger_id,
        "metadataFormatVersion": metadata.format_version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum_size,
        "ackQuorumSize": metadata.ack_quorum_size,
        "state": metadata.state.name,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry_id,
        "ctime": ctime_ms if ctime_ms is not None else -1,
        "digestType": None if metadata.digest_type is None else _NAMES[metadata.digest_type],
        "password": base64.b64encode(metadata.password).decode(),
        "customMetadata": {
            name: base64.b64encode(data).decode() for name, data in sorted(metadata.custom_metadata.items())
        },
        "closed": metadata.is_closed,
        "allEnsembles": {
            str(fragment.first_entry_id): [{"id": bookie_id} for bookie_id in fragment.ensemble]
            for fragment in metadata.fragments
        },
        "ctoken": metadata.creator_token,
    }


async def metadata(subject: Administered, request: HttpRequest) -> HttpResponse:
    """The metadata of one ledger."""
    if request.method != "GET" or "ledger_id" not in request.params:
        return sentence(HTTPStatus.NOT_FOUND, "Not found method. Should be GET method")
    ledger_id = _number(request, "ledger_id", -1)
    return json_answer({str(ledger_id): _members(await subject.metadata.read_ledger(ledger_id))})


async def read(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Entries of a ledger, as ASCII, read without a recovery."""
    if request.method != "GET" or "ledger_id" not in request.params:
        text = "Not found method. Should be GET method, with ledger_id provided"
        return sentence(HTTPStatus.NOT_FOUND, text)
    ledger_id, page = _number(request, "ledger_id", -1), _number(request, "page", -1)
    start, end = _number(request, "start_entry_id", 0), _number(request, "end_entry_id", -1)
    found: dict[str, str] = {}
    if page > 0:
        first = (page - 1) * _PAGE_ENTRIES
        start = first if start == 0 else max(start, first)
        end = first + _PAGE_ENTRIES - 1 if end == -1 else min(end, first + _PAGE_ENTRIES - 1)
        found["Entries for page: "] = str(page)
    if end != -1 and start > end:
        text = f"parameter for start_entry_id: {start} and end_entry_id: {end} conflict with page={page}"
        return sentence(HTTPStatus.INTERNAL_SERVER_ERROR, text)
    if subject.connect is None:
        return sentence(HTTPStatus.INTERNAL_SERVER_ERROR, "this bookie has no client of its cluster")
    async with subject.connect() as client:
        reader = await client.open_ledger_as_administrator(ledger_id, recover=False)
        last = await reader.read_last_add_confirmed()
        last = last if end == -1 else min(end, last)
        size = 0
        if start <= last:
            async for entry in reader.read_range(start, last):
                size += len(entry.payload)
                if size > READ_BYTES_MAX:
                    raise BadBody(f"the entries have more than {READ_BYTES_MAX} bytes; ask for pages")
                found[str(entry.entry_id)] = entry.payload.decode("ascii", "replace")
    return json_answer(found)


_BASE: Final = "/api/v1/ledger"
LEDGER_ANSWERS: Final[dict[str, Answer]] = {
    f"{_BASE}/delete": delete,
    f"{_BASE}/list": list_ledgers,
    f"{_BASE}/metadata": metadata,
    f"{_BASE}/read": read,
}

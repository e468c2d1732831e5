"""Endpoints about the bookie itself: its state, its disks, its files."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Final

from bkclient.errors import BookKeeperError
from bkclient.ledger import DigestType
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddRequest, ReadRequest, Request, Status
from simbookie.add_refusals import takes_high_priority
from simbookie.admin.answers import BadBody, body_object, json_answer, sentence
from simbookie.admin.endpoints import Administered, Answer
from simbookie.admin.http_server import HttpRequest, HttpResponse
from simbookie.bookie import Bookie, BookieState
from simbookie.storage.base import StorageError
from simbookie.storage.disk.base import Disk
from simbookie.storage.folders import Folder
from simbookie.storage.journal.mark import LogMark
from simbookie.storage.journaled import JournaledStorage

__all__ = ["BOOKIE_ANSWERS"]

_SANITY_ENTRIES: Final = 10
_SANITY_TIMEOUT_S: Final = 5.0
_ANNOUNCED_TIMEOUT_S: Final = 30.0


async def state(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Where the bookie is in its life."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, "Only support GET method to retrieve bookie state.")
    bookie = subject.bookie
    return json_answer(
        {
            "running": bookie.state is BookieState.RUNNING,
            "readOnly": bookie.read_only,
            "shuttingDown": bookie.state is BookieState.STOPPING,
            "availableForHighPriorityWrites": takes_high_priority(bookie.config, bookie.storage),
        }
    )


async def read_only(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Whether the bookie is read-only; PUT switches by hand, which space on disks does not undo.

    It is answered when clients can know of it from the metadata store.
    """
    bookie = subject.bookie
    if request.method == "PUT":
        wanted = body_object(request).get("readOnly", False)
        if not isinstance(wanted, bool):
            raise BadBody("readOnly must be true or false")
        if bookie.read_only and not wanted:
            if bookie.config.read_only_forced:
                text = "Bookie is in forceReadOnly mode, cannot transit to writable mode"
                return sentence(HTTPStatus.BAD_REQUEST, text)
            bookie.set_read_only(False)
        elif wanted and not bookie.read_only:
            if not bookie.config.read_only_allowed:
                text = "Bookie is disabled ReadOnly mode, cannot transit to readOnly mode"
                return sentence(HTTPStatus.BAD_REQUEST, text)
            bookie.set_read_only(True)
        if subject.announced is not None:
            try:
                async with asyncio.timeout(_ANNOUNCED_TIMEOUT_S):
                    await subject.announced()
            except TimeoutError:
                mode = "read-only" if bookie.read_only else "writable"
                text = f"The bookie is {mode}, which the metadata store was not told within {_ANNOUNCED_TIMEOUT_S:g} s"
                return sentence(HTTPStatus.INTERNAL_SERVER_ERROR, text)
    elif request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, "Unsupported method. Should be GET or PUT method")
    return json_answer({"readOnly": bookie.read_only})


async def is_ready(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Whether requests are served."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, "Only support GET method check if bookie is ready.")
    if subject.bookie.state is not BookieState.RUNNING:
        return sentence(HTTPStatus.SERVICE_UNAVAILABLE, "Bookie is not fully started yet")
    return sentence(HTTPStatus.OK, "OK")


async def info(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Disk space."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, "Only GET is supported.")
    capacity = subject.bookie.storage.capacity()
    return json_answer({"freeSpace": capacity.free, "totalSpace": capacity.total})


async def sanity(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Whether a few entries can be stored and read back."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, "Only support GET method to retrieve bookie sanity state.")
    if subject.bookie.config.read_only_forced:
        return json_answer({"passed": False, "readOnly": True})
    try:
        async with asyncio.timeout(_SANITY_TIMEOUT_S):
            passed = await _is_sane(subject)
    except (TimeoutError, BookKeeperError):
        passed = False
    return json_answer({"passed": passed, "readOnly": False})


async def _is_sane(subject: Administered) -> bool:
    """Store and read entries of a ledger that nobody knows, and remove it."""
    bookie = subject.bookie
    if bookie.state is not BookieState.RUNNING:
        return False
    codec = EntryCodec(await subject.metadata.generate_ledger_id(), DigestType.CRC32C, b"")
    ledger_id = codec.ledger_id
    try:
        for entry_id in range(_SANITY_ENTRIES):
            header = codec.encode_header(entry_id, entry_id - 1, 0, b"")
            if (
                await _asked(bookie, AddRequest(ledger_id, entry_id, codec.master_key, header, b""))
            ).status != Status.OK:
                return False
        for entry_id in range(_SANITY_ENTRIES):
            answer = await _asked(bookie, ReadRequest(ledger_id, entry_id))
            if answer.status is not Status.OK or codec.decode(answer.body, entry_id).entry_id != entry_id:
                return False
    finally:
        if bookie.state is BookieState.RUNNING:
            bookie.delete_ledger(ledger_id)
    return True


async def _asked(bookie: Bookie, request: Request) -> Any:
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def respond(response: Any) -> None:
        if not answered.done():
            answered.set_result(response)

    bookie.submit(request, respond, source="sanity")
    return await answered


async def last_log_mark(subject: Administered, request: HttpRequest) -> HttpResponse:
    """How far each journal is behind what the store has on disk."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, "Not found method. Should be GET method")
    storage = subject.bookie.storage
    marks: list[LogMark] = []
    if isinstance(storage, JournaledStorage) and storage.checkpoints is not None:
        marks = storage.checkpoints.persisted
    return json_answer(
        {
            f"LastLogMark: Journal Id - {mark.file_id}({mark.file_id:x}.txn)": f"Pos - {mark.offset}"
            for mark in marks or [LogMark(0, 0)]
        }
    )


async def list_disk_file(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Names of journals, entry logs and index files."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, "Not found method. Should be GET method")
    storage, wanted = subject.bookie.storage, request.params.get("file_type")
    journals: tuple[Folder, ...] = ()
    ledgers: tuple[Folder, ...] = ()
    if isinstance(storage, JournaledStorage):
        journals, ledgers = storage.journal_folders, storage.ledger_folders
    kinds = {"index": (".idx", ledgers), "journal": (".txn", journals), "entrylog": (".log", ledgers)}
    try:
        return json_answer(
            {
                f"{kind} files": "".join(f"{name}\t" for folder in folders for name in _names(folder, suffix))
                for kind, (suffix, folders) in kinds.items()
                if wanted == kind or wanted not in kinds
            }
        )
    except StorageError as error:
        return sentence(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))


def _names(folder: Folder, suffix: str) -> list[str]:
    """Names of files in a folder and those below it, ascending."""
    found = _below(folder.disk, folder.path)
    return sorted(name for name in found if name.endswith(suffix))


def _below(disk: Disk, path: str) -> list[str]:
    names = list(disk.names(path))
    for folder in disk.folders(path):
        names += _below(disk, f"{path}/{folder}")
    return names


async def expand_storage(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Check the folders against their cookies, and stamp those that are new."""
    if request.method != "PUT":
        return sentence(HTTPStatus.NOT_FOUND, "Not found method. Should be PUT method")
    try:
        if subject.expand is not None:
            await subject.expand()
    except (StorageError, BookKeeperError):
        return sentence(HTTPStatus.INTERNAL_SERVER_ERROR, "Exception while updating cookie for storage expansion")
    return sentence(HTTPStatus.OK, "Success expand storage")


_BASE: Final = "/api/v1/bookie"
BOOKIE_ANSWERS: Final[dict[str, Answer]] = {
    f"{_BASE}/state": state,
    f"{_BASE}/state/readonly": read_only,
    f"{_BASE}/is_ready": is_ready,
    f"{_BASE}/info": info,
    f"{_BASE}/sanity": sanity,
    f"{_BASE}/last_log_mark": last_log_mark,
    f"{_BASE}/list_disk_file": list_disk_file,
    f"{_BASE}/expand_storage": expand_storage,
}

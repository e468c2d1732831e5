"""Endpoints about the cluster: its bookies, and its auto-recovery."""

from __future__ import annotations

import asyncio
import random
from http import HTTPStatus
from typing import Any, Final

from bkclient.errors import BookieNotAvailable, BookKeeperError
from bkclient.metadata.paths import check_bookie_id, is_valid_bookie_id
from bkclient.metadata.tree import tree_of
from bkclient.repair import RepairAdmin, UnderReplication
from bkclient.repair.underreplication.election import AuditorElection
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import BookieInfoRequest, BookieInfoResponse, Status
from simbookie.admin.answers import BadBody, body_object, json_answer, sentence
from simbookie.admin.endpoints import Administered, Answer
from simbookie.admin.http_server import HttpRequest, HttpResponse
from simbookie.admin.jobs import Job

__all__ = ["CLUSTER_ANSWERS"]

_BOTH_SPACES: Final = 3
_INFO_TIMEOUT_S: Final = 5.0
_ONLY_GET: Final = "Not found method. Should be GET method"
_ONLY_PUT: Final = "Not found method. Should be PUT method"


def _marks(subject: Administered) -> UnderReplication:
    return UnderReplication(
        tree_of(subject.metadata),
        name=subject.bookie.bookie_id,
        wall_clock_ms=lambda: int(subject.wall_clock() * 1000),
        rng=random.Random(0),  # noqa: S311  the order of marks matters to workers only
    )


async def list_bookies(subject: Administered, request: HttpRequest) -> HttpResponse:
    """The registered bookies, writable or read-only, with their hosts if asked for."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, _ONLY_GET)
    sets = await subject.metadata.bookies()
    found: dict[str, str | None] = {}
    for bookie_id in sets.read_only if request.params.get("type") == "ro" else sets.writable:
        found[bookie_id] = None
        if request.params.get("print_hostnames") == "true":
            try:
                found[bookie_id] = (await subject.metadata.bookie_address(bookie_id)).host
            except BookieNotAvailable:
                continue
    return json_answer(found)


async def list_bookie_info(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Disk space of all writable bookies that tell theirs, and of all together."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, _ONLY_GET)
    bookies = (await subject.metadata.bookies()).writable
    told = await asyncio.gather(*(_space_of(subject, bookie_id) for bookie_id in bookies))
    spaces = {bookie_id: space for bookie_id, space in zip(bookies, told, strict=True) if space is not None}
    if not spaces:
        return sentence(HTTPStatus.NOT_FOUND, "Not found any Bookie info.")
    found = {bookie_id: f": {_space(*space)}," for bookie_id, space in spaces.items()}
    found["ClusterInfo: "] = _space(
        sum(free for free, _ in spaces.values()), sum(total for _, total in spaces.values())
    )
    return json_answer(found)


def _space(free: int, total: int) -> str:
    return f"{{Free: {free}{_readable(free)}, Total: {total}{_readable(total)}}}"


def _readable(size: int) -> str:
    """In thousands of thousands, cut off after three digits."""
    units, count, value = ("", "KB", "MB", "GB", "TB"), 0, float(size)
    while value >= 1000 and count < len(units) - 1:
        value, count = value / 1000, count + 1
    return f"({int(value * 1000) / 1000:g}{units[count]})" if count else ""


async def _space_of(subject: Administered, bookie_id: str) -> tuple[int, int] | None:
    """Free and total bytes of a bookie; ``None`` if it cannot be asked in clear, or does not answer in time."""
    try:
        async with asyncio.timeout(_INFO_TIMEOUT_S):
            address = await subject.metadata.bookie_address(bookie_id)
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                wire: ClientConnection[None] = ClientConnection(3)
                writer.write(b"".join(bytes(part) for part in wire.send(BookieInfoRequest(_BOTH_SPACES), None)))
                while data := await reader.read(4096):
                    for _, _, status, response in wire.receive(data):
                        if status is Status.OK and isinstance(response, BookieInfoResponse):
                            return response.free_disk_space or 0, response.total_disk_capacity or 0
                        return None
            finally:
                writer.close()
    except (OSError, TimeoutError, BookKeeperError):
        return None
    return None


async def cluster_info(subject: Administered, request: HttpRequest) -> HttpResponse:
    """How many bookies there are, and how auto-recovery is."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, "Only GET is supported.")
    tree, marks = tree_of(subject.metadata), _marks(subject)
    sets = await subject.metadata.bookies()
    known = len([name for name in await tree.children("cookies") if is_valid_bookie_id(name)])
    auditor = await AuditorElection(tree, "admin").auditor()
    writable, read_only = len(sets.writable), len(sets.read_only)
    return json_answer(
        {
            "auditorElected": auditor is not None,
            "auditorId": auditor or "",
            "clusterUnderReplicated": await anext(marks.marks(), None) is not None,
            "ledgerReplicationEnabled": await marks.is_enabled(),
            "totalBookiesCount": known,
            "writableBookiesCount": writable,
            "readonlyBookiesCount": read_only,
            "unavailableBookiesCount": known - writable - read_only,
        }
    )


async def auto_recovery_status(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Whether auto-recovery is on; PUT switches it."""
    marks = _marks(subject)
    if request.method == "PUT":
        wanted = request.params.get("enabled")
        if wanted is None:
            return sentence(HTTPStatus.BAD_REQUEST, f"Param 'enabled' not found in {_java_map(request.params)}")
        if wanted.lower() == "true":
            await marks.enable()
        else:
            await marks.disable()
    elif request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, "Not found method. Should be GET or PUT method")
    return json_answer({"enabled": await marks.is_enabled()})


def _java_map(params: dict[str, str]) -> str:
    return "{" + ", ".join(f"{name}={value}" for name, value in params.items()) + "}"


async def under_replicated(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Marked ledgers, those that miss a certain bookie or do not."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, _ONLY_GET)
    wanted = request.params.get("missingreplica", "").strip()
    unwanted = request.params.get("excludingmissingreplica", "").strip()
    found: dict[str, Any] = {}
    async for mark in _marks(subject).marks():
        if (not wanted or wanted in mark.missing) and not (unwanted and unwanted in mark.missing):
            found[str(mark.ledger_id)] = list(mark.missing)
    if not found:
        return sentence(HTTPStatus.NOT_FOUND, "No under replicated ledgers found")
    return json_answer(found if "printmissingreplica" in request.params else [int(each) for each in found])


async def who_is_auditor(subject: Administered, request: HttpRequest) -> HttpResponse:
    """The bookie whose auditor was elected."""
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, _ONLY_GET)
    auditor = await AuditorElection(tree_of(subject.metadata), "admin").auditor()
    if auditor is None:
        return sentence(HTTPStatus.NOT_FOUND, "No auditor elected")
    return sentence(HTTPStatus.OK, f"Auditor: {auditor}")


async def trigger_audit(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Have the auditor audit at once."""
    if request.method != "PUT":
        return sentence(HTTPStatus.NOT_FOUND, _ONLY_PUT)
    marks = _marks(subject)
    await marks.set_lost_bookie_recovery_delay_s(await marks.lost_bookie_recovery_delay_s() or 0)
    return sentence(HTTPStatus.OK, "Success trigger audit.")


async def lost_bookie_recovery_delay(subject: Administered, request: HttpRequest) -> HttpResponse:
    """How long the audit of a single lost bookie waits; PUT sets it."""
    marks = _marks(subject)
    if request.method == "PUT":
        if not request.body:
            return sentence(HTTPStatus.NOT_FOUND, "Null request body for lostBookieRecoveryDelay.")
        asked = body_object(request)
        if "delay_seconds" not in asked:
            return sentence(HTTPStatus.NOT_FOUND, "Request body not contains lostBookieRecoveryDelay.")
        delay_s = asked["delay_seconds"]
        if not isinstance(delay_s, int) or isinstance(delay_s, bool) or not 0 <= delay_s < 1 << 31:
            raise BadBody("delay_seconds must be a whole number from 0 to 2^31 - 1")
        await marks.set_lost_bookie_recovery_delay_s(delay_s)
        return sentence(HTTPStatus.OK, f"Success set lostBookieRecoveryDelay to {delay_s}")
    if request.method != "GET":
        return sentence(HTTPStatus.NOT_FOUND, _ONLY_PUT)
    known = await marks.lost_bookie_recovery_delay_s()
    if known is None:
        return sentence(HTTPStatus.NOT_FOUND, "Exception when get lostBookieRecoveryDelay.it was never set")
    return sentence(HTTPStatus.OK, f"lostBookieRecoveryDelay value: {known}")


async def recover_bookie(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Copy what a bookie stored to others, after this was answered."""
    if not request.body:
        return sentence(HTTPStatus.NOT_FOUND, "No request body provide.")
    asked = body_object(request)
    sources = asked.get("bookie_src")
    if not isinstance(sources, list) or not all(isinstance(each, str) for each in sources):
        return sentence(HTTPStatus.NOT_FOUND, "ERROR parameters: Failed to deserialize Object from Json string")
    if request.method != "PUT" or not sources:
        return sentence(HTTPStatus.NOT_FOUND, _ONLY_PUT)
    bookie_id = _bookie_id(sources[0])

    async def recover() -> None:
        assert subject.connect is not None
        async with subject.connect() as client:
            await RepairAdmin(client).recover_bookie([bookie_id])
        if asked.get("delete_cookie") is True:
            await tree_of(subject.metadata).delete(f"cookies/{bookie_id}")

    return _begun(subject, f"recovering bookie {bookie_id}", recover, "Success send recovery request command.")


async def decommission(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Wait until no ledger needs a bookie that was shut down, after this was answered."""
    if request.method != "PUT":
        return sentence(HTTPStatus.NOT_FOUND, _ONLY_PUT)
    if not request.body:
        return sentence(HTTPStatus.NOT_FOUND, "Null request body for DecommissionService.")
    asked = body_object(request)
    if "bookie_src" not in asked:
        return sentence(HTTPStatus.NOT_FOUND, "Request body not contains bookie_src.")
    bookie_id = _bookie_id(asked["bookie_src"])

    async def retire() -> None:
        assert subject.connect is not None
        async with subject.connect() as client:
            await RepairAdmin(client).decommission(bookie_id)
        if str(asked.get("delete_cookie", "false")).lower() == "true":
            await tree_of(subject.metadata).delete(f"cookies/{bookie_id}")

    text = f"Success send decommission Bookie command {bookie_id}"
    return _begun(subject, f"decommissioning bookie {bookie_id}", retire, text)


def _bookie_id(value: Any) -> str:
    try:
        return check_bookie_id(value)
    except BookKeeperError as error:
        raise BadBody(str(error)) from None


def _begun(subject: Administered, name: str, job: Job, text: str) -> HttpResponse:
    if subject.connect is None:
        return sentence(HTTPStatus.INTERNAL_SERVER_ERROR, "this bookie has no client of its cluster")
    if not subject.jobs.begin(name, job):
        return sentence(HTTPStatus.SERVICE_UNAVAILABLE, "too many such requests wait")
    return sentence(HTTPStatus.OK, text)


_BASE: Final = "/api/v1/autorecovery"
CLUSTER_ANSWERS: Final[dict[str, Answer]] = {
    "/api/v1/bookie/list_bookies": list_bookies,
    "/api/v1/bookie/list_bookie_info": list_bookie_info,
    "/api/v1/bookie/cluster_info": cluster_info,
    f"{_BASE}/status": auto_recovery_status,
    f"{_BASE}/list_under_replicated_ledger": under_replicated,
    f"{_BASE}/who_is_auditor": who_is_auditor,
    f"{_BASE}/trigger_audit": trigger_audit,
    f"{_BASE}/lost_bookie_recovery_delay": lost_bookie_recovery_delay,
    f"{_BASE}/bookie": recover_bookie,
    f"{_BASE}/decommission": decommission,
}

"""Each recorder writes down exactly what the vocabulary promises, hands everything on, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bkclient.errors import (
    BookKeeperError,
    Code,
    LedgerClosed,
    LedgerFenced,
    MetadataVersionConflict,
    NoSuchLedger,
    ReadFailed,
)
from bkclient.ledger import Versioned
from bkclient.protocol.recovery import EntryVerdict
from bkclient.transport.base import ReplyHandler
from bkclient.transport.reads import ReadReplies, reads_over
from bkclient.wire.connection import FoundBody
from bkclient.wire.messages import (
    LAST_ENTRY,
    AddRequest,
    ForceLedgerRequest,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
)
from scenarios.conditions import draw_conditions
from scenarios.history import Event, Kind
from scenarios.recording.client import RecordedClient, each_entry
from scenarios.recording.recorders import BookieRecorder, ClientLog, RecoveryRecorder, fingerprint
from scenarios.recording.transport import RecordingTransport
from scenarios.stage import Stage
from simbookie.world.links import NetworkConfig
from simbookie.world.metadata_service import MetadataConfig
from tests.scenarios.notes import CODEC, LEDGER, METADATA, Notes
from tests.scenarios.played import perform


@pytest.fixture
def notes() -> Notes:
    return Notes()


# The transport ----------------------------------------------------------------------------------------------------


class Wire:
    """A transport that keeps what is submitted until told to answer."""

    def __init__(self) -> None:
        self.connections = {"full": 7}
        self.sent: list[tuple[str, Request, ReplyHandler]] = []
        self.closed = 0

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        self.sent.append((bookie_id, request, reply_to))

    def pending_requests(self, bookie_id: str) -> int:
        return sum(bookie == bookie_id for bookie, _, _ in self.sent)

    def is_writable(self, bookie_id: str) -> bool:
        return bookie_id != "full"

    async def aclose(self) -> None:
        self.closed += 1

    def answer(self, code: int, response: Response | None = None) -> None:
        bookie_id, request, reply_to = self.sent.pop()
        reply_to(bookie_id, request, code, response)


class Client:
    """A recorded transport and what came out at its upper end."""

    def __init__(self, notes: Notes) -> None:
        self.wire = Wire()
        self.transport = RecordingTransport(self.wire, notes.recorder, "writer", 2)
        self.outcomes: list[tuple[str, Request, int, Response | None]] = []

    def submit(self, bookie_id: str, request: Request) -> None:
        self.transport.submit(bookie_id, request, lambda *outcome: self.outcomes.append(outcome))
        forwarded_to, forwarded, _ = self.wire.sent[-1]
        assert (forwarded_to, forwarded) == (bookie_id, request), "handed on as it is"


@pytest.fixture
def client(notes: Notes) -> Client:
    return Client(notes)


def entry(entry_id: int, payload: bytes, lac: int = -1, length: int = 0) -> bytes:
    return CODEC.encode_header(entry_id, lac, length, payload) + payload


@pytest.mark.parametrize("recovery", [False, True])
def test_an_add_and_its_answer(notes: Notes, client: Client, recovery: bool) -> None:
    header = CODEC.encode_header(5, 4, 321, b"payload")
    request = AddRequest(LEDGER, 5, b"key", header, b"payload", recovery=recovery)
    client.submit("b1", request)
    common = {"incarnation": 2, "entry": 5, "bookie": "b1", "recovery": recovery, "request": 1}
    sent = {**common, "lac": 4, "length": 321, "content": fingerprint(b"payload"), "size": 7}
    assert notes.told() == [("ADD_SEND", "writer", LEDGER, sent)]
    client.wire.answer(Code.LEDGER_FENCED)
    assert notes.told() == [("ADD_RESP", "writer", LEDGER, {**common, "code": -101})]
    assert client.outcomes == [("b1", request, Code.LEDGER_FENCED, None)]


def test_a_read_and_its_answer(notes: Notes, client: Client) -> None:
    request = ReadRequest(LEDGER, 3)
    client.submit("b0", request)
    assert notes.told() == [("READ_SEND", "writer", LEDGER, {"entry": 3, "bookie": "b0", "request": 1})]
    response = ReadResponse(Status.OK, LEDGER, 3, body=entry(3, b"three", lac=2), max_lac=9)
    client.wire.answer(Code.OK, response)
    found = {"entry": 3, "bookie": "b0", "code": 0, "content": fingerprint(b"three"), "lac": 9, "request": 1}
    assert notes.told() == [("READ_RESP", "writer", LEDGER, found)]
    assert client.outcomes == [("b0", request, Code.OK, response)]
    client.submit("b0", request)
    client.wire.answer(Code.TIMEOUT)
    assert notes.told()[1][3] == {
        "entry": 3,
        "bookie": "b0",
        "code": -23,
        "content": None,
        "lac": None,
        "request": 2,
    }


class SeveralAtOnce(Wire):
    """The same, and it sends many reads at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, tuple[int, ...], ReadReplies]] = []

    def read_sender(self, ledger_id: int) -> SeveralAtOnce:
        assert ledger_id == LEDGER
        return self

    def send(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> None:
        self.asked.append((bookie_id, tuple(entry_ids), replies))


class Hearing:
    """A reader that notes in the history when it hears of an entry."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def on_found(self, _bookie_id: str, found: Sequence[FoundBody]) -> None:
        self.notes.recorder.record(Kind.BK_SYNC, "heard", LEDGER, entry=found[0][0])
        assert len(found) == 1, "what is done about one entry is recorded before the next"

    def __call__(self, _bookie_id: str, request: Request, code: int, _response: Response | None) -> None:
        assert isinstance(request, ReadRequest)
        assert code == Code.NO_SUCH_ENTRY
        self.notes.recorder.record(Kind.BK_SYNC, "heard", LEDGER, entry=request.entry_id)


def test_reads_that_are_sent_together_are_recorded_as_if_one_by_one(notes: Notes) -> None:
    wire = SeveralAtOnce()
    transport = RecordingTransport(wire, notes.recorder, "writer", 2)
    reads_over(transport, LEDGER).send("b0", [3, 4, 5], Hearing(notes))
    assert notes.told() == [
        ("READ_SEND", "writer", LEDGER, {"entry": n, "bookie": "b0", "request": number})
        for number, n in enumerate((3, 4, 5), 1)
    ]
    ((bookie_id, entry_ids, replies),) = wire.asked
    assert (bookie_id, entry_ids) == ("b0", (3, 4, 5))
    replies.on_found("b0", [(4, entry(4, b"four"), -1), (3, entry(3, b"three"), None)])
    replies("b0", ReadRequest(LEDGER, 5), Code.NO_SUCH_ENTRY, ReadResponse(Status.NO_ENTRY, LEDGER, 5))
    names = ("entry", "content", "lac", "request")
    told = [(kind, *(fields.get(name) for name in names)) for kind, _, _, fields in notes.told()]
    assert told == [
        ("READ_RESP", 4, fingerprint(b"four"), -1, 2),
        ("BK_SYNC", 4, None, None, None),
        ("READ_RESP", 3, fingerprint(b"three"), None, 1),
        ("BK_SYNC", 3, None, None, None),
        ("READ_RESP", 5, None, None, 3),
        ("BK_SYNC", 5, None, None, None),
    ]


def test_a_fencing_read_and_its_answer(notes: Notes, client: Client) -> None:
    client.submit("b0", ReadRequest(LEDGER, LAST_ENTRY, fence_key=b"key", high_priority=True))
    assert notes.told() == [("FENCE_SEND", "writer", LEDGER, {"bookie": "b0", "request": 1})]
    client.wire.answer(Code.OK, ReadResponse(Status.OK, LEDGER, 8, body=entry(8, b"eight", lac=6)))
    assert notes.told() == [
        ("FENCE_RESP", "writer", LEDGER, {"bookie": "b0", "code": 0, "lac": 6, "entry": 8, "request": 1})
    ]
    client.submit("b0", ReadRequest(LEDGER, LAST_ENTRY, fence_key=b"key", high_priority=True))
    client.wire.answer(Code.NO_SUCH_ENTRY, ReadResponse(Status.NO_ENTRY, LEDGER, LAST_ENTRY))
    assert notes.told()[1][3] == {"bookie": "b0", "code": -13, "lac": -1, "entry": -1, "request": 2}


@pytest.mark.parametrize("fence_key", [None, b"key"])
def test_a_recovery_read_and_its_answer_tell_whether_it_fenced(
    notes: Notes, client: Client, fence_key: bytes | None
) -> None:
    client.submit("b2", ReadRequest(LEDGER, 4, fence_key=fence_key, high_priority=True))
    common = {"entry": 4, "bookie": "b2", "fence": fence_key is not None, "request": 1}
    assert notes.told() == [("REC_READ_SEND", "writer", LEDGER, common)]
    client.wire.answer(Code.OK, ReadResponse(Status.OK, LEDGER, 4, body=entry(4, b"four")))
    found = {**common, "code": 0, "content": fingerprint(b"four")}
    assert notes.told() == [("REC_READ_RESP", "writer", LEDGER, found)]


def test_a_read_of_the_last_entry_without_a_fence_is_an_ordinary_one(notes: Notes, client: Client) -> None:
    client.submit("b2", ReadRequest(LEDGER, LAST_ENTRY))
    assert notes.told() == [("READ_SEND", "writer", LEDGER, {"entry": -1, "bookie": "b2", "request": 1})]


def test_other_requests_pass_unrecorded(notes: Notes, client: Client) -> None:
    for request in (ReadLacRequest(LEDGER), ForceLedgerRequest(LEDGER)):
        client.submit("b2", request)
        client.wire.answer(Code.OK)
    assert notes.told() == []
    assert len(client.outcomes) == 2


async def test_closing_closes(client: Client) -> None:
    await client.transport.aclose()
    assert client.wire.closed == 1


# Recoveries and bookies --------------------------------------------------------------------------------------------


def test_what_a_recovery_concludes(notes: Notes) -> None:
    recovery = RecoveryRecorder(notes.recorder, "recoverer")
    recovery.recovery_started(Versioned(METADATA.with_ensemble(4, ("b0", "b1", "b3")), 6))
    recovery.entry_decided(LEDGER, 5, EntryVerdict.POSITIVE, ("b1",))
    recovery.entry_decided(LEDGER, 6, EntryVerdict.NEGATIVE, ("b0", "b3"))
    recovery.entry_decided(LEDGER, 7, EntryVerdict.UNKNOWN, ())
    assert notes.told() == [
        ("REC_START", "recoverer", LEDGER, {"version": 6, "first_entry": 4, "bookies": "b0,b1,b3"}),
        ("REC_DECIDE", "recoverer", LEDGER, {"entry": 5, "verdict": "positive", "bookies": "b1"}),
        ("REC_DECIDE", "recoverer", LEDGER, {"entry": 6, "verdict": "negative", "bookies": "b0,b3"}),
        ("REC_DECIDE", "recoverer", LEDGER, {"entry": 7, "verdict": "unknown", "bookies": ""}),
    ]


def test_a_start_that_was_refused_does_not_mend_that_a_bookie_was_killed(notes: Notes) -> None:
    bookie = BookieRecorder(notes.recorder, "b0")
    known = [bookie.was_killed]
    bookie.crashed(False, "power")
    known.append(bookie.was_killed)
    bookie.crashed(True, "it does not start: no room")
    known.append(bookie.was_killed)
    bookie.restarted(2, "replayed")
    known.append(bookie.was_killed)
    bookie.crashed(True, "orderly shutdown")
    known.append(bookie.was_killed)
    assert known == [False, True, True, False, False]


def test_what_happens_inside_a_bookie(notes: Notes) -> None:
    bookie = BookieRecorder(notes.recorder, "b0")
    bookie.entry_stored(LEDGER, 5, entry(5, b"five", lac=3, length=44), True, "writer")
    bookie.entry_synced(LEDGER, 5)
    bookie.lac_advanced(LEDGER, 3)
    bookie.fence_set(LEDGER, "recoverer", False)
    bookie.limbo_changed(LEDGER, True)
    bookie.limbo_changed(LEDGER, False)
    bookie.ledger_deleted(LEDGER)
    bookie.entry_lost(LEDGER, 5, "not synced")
    bookie.fence_forgotten(LEDGER, "not replayed")
    bookie.crashed(False, "power")
    bookie.restarted(2, "replayed")
    stored = {"entry": 5, "content": fingerprint(b"five"), "recovery": True, "source": "writer", "lac": 3, "length": 44}
    assert notes.told() == [
        ("BK_STORE", "b0", LEDGER, stored),
        ("BK_SYNC", "b0", LEDGER, {"entry": 5}),
        ("BK_LAC", "b0", LEDGER, {"lac": 3}),
        ("FENCE_SET", "b0", LEDGER, {"source": "recoverer", "durable": False}),
        ("BK_LIMBO", "b0", LEDGER, {"verdict": "on"}),
        ("BK_LIMBO", "b0", LEDGER, {"verdict": "off"}),
        ("BK_GC", "b0", LEDGER, {}),
        ("BK_LOSS", "b0", LEDGER, {"entry": 5, "detail": "not synced"}),
        ("FENCE_LOST", "b0", LEDGER, {"detail": "not replayed"}),
        ("BK_CRASH", "b0", -1, {"clean": False, "detail": "power"}),
        ("BK_RESTART", "b0", -1, {"incarnation": 2, "detail": "replayed", "cookie": None}),
    ]


def test_a_fingerprint_tells_payloads_apart_and_fits_a_signed_long() -> None:
    prints = {fingerprint(b"%d" % i) for i in range(10_000)}
    assert len(prints) == 10_000
    assert all(0 <= value < 1 << 63 for value in prints)
    assert fingerprint(b"1") == fingerprint(b"%d" % 1)


# Applications -----------------------------------------------------------------------------------------------------


class Writer:
    """Stands in for a ledger's writer, as far as it is recorded."""

    ledger_id = LEDGER
    metadata = METADATA
    is_deferred_sync = False

    def __init__(self) -> None:
        self.close_error: BookKeeperError | None = None
        self.may_close = asyncio.Event()

    async def force(self) -> None:
        await self.may_close.wait()
        if self.close_error is not None:
            raise self.close_error

    async def close(self) -> None:
        await self.may_close.wait()
        if self.close_error is not None:
            raise self.close_error
        self.metadata = METADATA.closed(3, 44)


def added(notes: Notes, entry_id: int, payload: bytes) -> Any:
    log, future = ClientLog(notes.recorder, "writer", 1), asyncio.get_running_loop().create_future()
    return log.added(Writer(), entry_id, payload, future, given=False)  # type: ignore[arg-type]


async def close(notes: Notes, writer: Writer) -> None:
    await ClientLog(notes.recorder, "writer", 1).closed(writer, writer.close())  # type: ignore[arg-type]


def app_add(entry_id: int, payload: bytes) -> tuple[str, str, int, dict[str, Any]]:
    fields = {
        "incarnation": 1,
        "entry": entry_id,
        "content": fingerprint(payload),
        "size": len(payload),
        "given": False,
    }
    return ("APP_ADD", "writer", LEDGER, fields)


async def test_an_append_and_what_the_application_is_told_of_it(notes: Notes) -> None:
    first, second, third = added(notes, 0, b"zero"), added(notes, 1, b""), added(notes, 2, b"two")
    assert notes.told() == [app_add(0, b"zero"), app_add(1, b""), app_add(2, b"two")]
    first.set_result(0)
    second.set_exception(LedgerClosed())
    third.cancel()
    assert notes.told() == [], "nobody has been told yet"
    await asyncio.wait([first, second, third])
    common = {"incarnation": 1, "entry": 0}
    assert notes.told() == [
        ("APP_ACK", "writer", LEDGER, {**common, "content": fingerprint(b"zero"), "durable": True}),
        ("APP_FAIL", "writer", LEDGER, {**common, "entry": 1, "code": -11}),
        ("APP_CANCEL", "writer", LEDGER, {**common, "entry": 2}),
    ]
    assert isinstance(second.exception(), LedgerClosed)


async def test_a_close_and_its_outcome(notes: Notes) -> None:
    writer = Writer()
    writer.may_close.set()
    writer.close_error = MetadataVersionConflict()
    with pytest.raises(MetadataVersionConflict):
        await close(notes, writer)
    assert notes.told() == [
        ("CLOSE_START", "writer", LEDGER, {}),
        ("CLOSE_RESULT", "writer", LEDGER, {"code": -17, "last_entry": -1, "length": 0}),
    ]
    writer.close_error = None
    await close(notes, writer)
    assert notes.told()[1] == ("CLOSE_RESULT", "writer", LEDGER, {"code": 0, "last_entry": 3, "length": 44})


async def test_a_close_that_is_cancelled_has_no_outcome(notes: Notes) -> None:
    closing = asyncio.create_task(close(notes, Writer()))
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert notes.told() == [("CLOSE_START", "writer", LEDGER, {})]


async def force(notes: Notes, writer: Writer) -> None:
    await ClientLog(notes.recorder, "writer", 1).forced(writer, writer.force())  # type: ignore[arg-type]


async def test_a_force_and_its_outcome(notes: Notes) -> None:
    writer = Writer()
    writer.may_close.set()
    await force(notes, writer)
    assert notes.told() == [("FORCE_START", "writer", LEDGER, {}), ("FORCE_RESULT", "writer", LEDGER, {"code": 0})]
    writer.close_error = LedgerClosed()
    with pytest.raises(LedgerClosed):
        await force(notes, writer)
    assert notes.told()[1] == ("FORCE_RESULT", "writer", LEDGER, {"code": -11})


async def test_a_force_that_is_cancelled_has_no_outcome(notes: Notes) -> None:
    forcing = asyncio.create_task(force(notes, Writer()))
    await asyncio.sleep(0)
    forcing.cancel()
    await asyncio.wait([forcing])
    assert notes.told() == [("FORCE_START", "writer", LEDGER, {})]


async def test_where_bookies_are_if_a_writer_demands_several_racks(notes: Notes) -> None:
    log = ClientLog(notes.recorder, "writer", 1)
    log.spread(Writer(), (("b0", "x"), ("b1", "x"), ("b2", "y")))  # type: ignore[arg-type]
    assert notes.told() == [("FAULT_DOMAINS", "writer", LEDGER, {"bookies": "b0,b1,b2", "racks": "x,x,y"})]


# Against the client itself -----------------------------------------------------------------------------------------

APPLICATION = {Kind.OPEN_START, Kind.OPEN_RESULT, Kind.READ_RESULT, Kind.LAC_ADV}


def events_of(work: Callable[[RecordedClient], Awaitable[None]], kinds: set[Kind]) -> list[Event]:
    """What is recorded of these kinds when a client works and nothing fails."""

    async def story(stage: Stage) -> None:
        await stage.client("client", work).ended()

    quiet = replace(draw_conditions(0), network=NetworkConfig(), metadata=MetadataConfig())
    return [event for event in perform(story, conditions=quiet) if event.kind in kinds]


def test_an_append_that_raises_is_no_append() -> None:
    """A writer that has failed refuses at once; what is refused has no entry id, and nothing of it is recorded."""

    async def work(client: RecordedClient) -> None:
        writer = await client.create_ledger(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2)
        await writer.append(b"zero")
        await client.open_ledger(writer.ledger_id, recover=True)
        for call in (writer.append, writer.submit):
            with pytest.raises(LedgerFenced):
                await call(b"late")
        with pytest.raises(LedgerFenced):
            writer.append_nowait(b"later")

    events = events_of(work, {Kind.APP_ADD, Kind.APP_ACK, Kind.APP_FAIL})
    assert [(str(event.kind), event.fields["entry"]) for event in events] == [
        ("APP_ADD", 0),
        ("APP_ACK", 0),
        ("APP_ADD", 1),
        ("APP_FAIL", 1),
    ]


def test_opening_and_reading_as_an_application_sees_it() -> None:
    ledgers: list[int] = []

    async def work(client: RecordedClient) -> None:
        writer = await client.create_ledger(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2)
        ledgers.append(writer.ledger_id)
        for payload in (b"zero", b"one"):
            await writer.append(payload)
        tail = await client.open_ledger(writer.ledger_id, recover=False)
        assert await tail.read_last_add_confirmed() == 0
        reader = await client.open_ledger(writer.ledger_id, recover=True)
        assert [entry.payload async for entry in each_entry(reader)] == [b"zero", b"one"]
        with pytest.raises(ReadFailed):
            await reader.read(2)
        with pytest.raises(NoSuchLedger):
            await client.open_ledger(99, recover=True)

    events = events_of(work, APPLICATION)
    (ledger,) = ledgers
    read = {"code": 0, "lac": 1, "version": 2, "handle": 2}
    failed = {"recovery": True, "code": -25, "state": None, "last_entry": -1, "length": 0, "handle": -1}
    assert [(str(e.kind), e.actor, e.ledger, dict(e.fields)) for e in events] == [
        ("OPEN_START", "client", ledger, {"recovery": False}),
        (
            "OPEN_RESULT",
            "client",
            ledger,
            {"recovery": False, "code": 0, "state": "OPEN", "last_entry": -1, "length": 0, "handle": 1},
        ),
        ("LAC_ADV", "client", ledger, {"lac": 0, "source": "open", "handle": 1}),
        ("LAC_ADV", "client", ledger, {"lac": 0, "source": "read-lac", "handle": 1}),
        ("OPEN_START", "client", ledger, {"recovery": True}),
        (
            "OPEN_RESULT",
            "client",
            ledger,
            {"recovery": True, "code": 0, "state": "CLOSED", "last_entry": 1, "length": 7, "handle": 2},
        ),
        ("READ_RESULT", "client", ledger, {"entry": 0, **read, "content": fingerprint(b"zero"), "size": 4}),
        ("READ_RESULT", "client", ledger, {"entry": 1, **read, "content": fingerprint(b"one"), "size": 3}),
        ("READ_RESULT", "client", ledger, {"entry": 2, **read, "code": -1, "content": None, "size": 0}),
        ("OPEN_START", "client", 99, {"recovery": True}),
        ("OPEN_RESULT", "client", 99, failed),
    ]

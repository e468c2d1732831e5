"""Requests have numbers: at the client, on arrival, in answers; and none is guessed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from bkclient.errors import Code
from bkclient.transport.adds import AddReplies, adds_over
from bkclient.wire.messages import LAST_ENTRY, AddRequest, AddTemplate, ForceLedgerRequest, ReadRequest, Status
from scenarios.history import Event, Kind, read_history
from scenarios.model import TransportKind
from scenarios.page.messages import messages_of
from scenarios.recording.messages import RequestNumbers, operation_of
from scenarios.recording.transport import RecordingTransport
from scenarios.runner import run_scenario
from simbookie.bookie import Bookie
from simbookie.observed import ObservedBookie
from simbookie.storage.memory import MemoryStorage, RecordLog
from tests.scenarios.notes import CODEC, LEDGER, Notes
from tests.scenarios.played import play
from tests.scenarios.test_recording import Client

KEY = ("writer", "b0", "read", LEDGER, 3)


# Which one it is that arrives ---------------------------------------------------------------------------------------


def test_the_only_request_that_may_arrive_is_the_one() -> None:
    messages = RequestNumbers()
    messages.sent(KEY, 4)
    assert messages.arrived(KEY, ReadRequest(LEDGER, 3)) == 4
    assert messages.arrived(("writer", "b1", *KEY[2:]), ReadRequest(LEDGER, 3)) is None


def test_of_two_that_may_arrive_none_is_guessed() -> None:
    messages = RequestNumbers()
    messages.sent(KEY, 4)
    messages.sent(KEY, 5)
    assert messages.arrived(KEY, ReadRequest(LEDGER, 3)) is None


@pytest.mark.parametrize(("code", "known"), [(Code.OK, 5), (Code.NO_SUCH_ENTRY, 5), (Code.TIMEOUT, None)])
def test_what_was_answered_arrives_no_more_and_what_timed_out_may(code: Code, known: int | None) -> None:
    messages = RequestNumbers()
    messages.sent(KEY, 4)
    messages.ended(KEY, 4, code)
    messages.sent(KEY, 5)
    assert messages.arrived(KEY, ReadRequest(LEDGER, 3)) == known


def test_an_object_is_known_however_often_it_arrives_and_for_a_while_after_its_end() -> None:
    messages, request = RequestNumbers(), ReadRequest(LEDGER, 3)
    tokens = [messages.sent_object("b0", request, 4), messages.sent_object("b1", request, 5)]
    for _ in range(2):
        assert messages.arrived(KEY, request) == 4
        assert messages.arrived(("writer", "b1", *KEY[2:]), request) == 5
        messages.object_ended(tokens[0])
    assert messages.arrived(KEY, ReadRequest(LEDGER, 3)) is None, "another object that looks like it"


def test_a_bounded_number_of_objects_is_remembered() -> None:
    messages = RequestNumbers()
    first = ReadRequest(LEDGER, 0)
    messages.object_ended(messages.sent_object("b0", first, 1))
    for number in range(2, 4098):
        messages.object_ended(messages.sent_object("b0", ReadRequest(LEDGER, number), number))
    assert messages.arrived(KEY, first) is None


def test_what_a_request_is_called() -> None:
    add = AddRequest(LEDGER, 5, b"key", b"header", b"payload")
    assert operation_of(add) == "add"
    assert operation_of(AddRequest(LEDGER, 5, b"key", b"header", b"payload", recovery=True)) == "write-back"
    assert operation_of(ReadRequest(LEDGER, LAST_ENTRY, fence_key=b"key", high_priority=True)) == "fence"
    assert operation_of(ReadRequest(LEDGER, 5, fence_key=b"key", high_priority=True)) == "recovery-read"
    assert operation_of(ReadRequest(LEDGER, 5)) == operation_of(ReadRequest(LEDGER, LAST_ENTRY)) == "read"
    assert operation_of(ForceLedgerRequest(LEDGER)) == ""


# At the client ------------------------------------------------------------------------------------------------------


class ManyAtOnce:
    """A transport that sends to a whole write set at once and keeps who hears of it."""

    def __init__(self) -> None:
        self.connections = {"b0": 1}
        self.senders: list[AddReplies] = []
        self.sent: list[tuple[int, tuple[str, ...], int]] = []

    def add_sender(self, _template: AddTemplate, replies: AddReplies) -> _Sender:
        self.senders.append(replies)
        return _Sender(self, len(self.senders) - 1)

    def submit(self, *_: object) -> None:
        raise AssertionError("adds go another way")

    pending_requests = is_writable = aclose = submit


class _Sender:
    def __init__(self, wire: ManyAtOnce, index: int) -> None:
        self.wire, self.index = wire, index

    def send(self, bookies: tuple[str, ...], entry_id: int, _header: bytes, _payload: bytes) -> None:
        self.wire.sent.append((self.index, bookies, entry_id))


class Writer:
    """Hears of everything, once."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int]] = []

    def on_adds_stored(self, bookie_id: str, entry_ids: Sequence[int]) -> None:
        self.heard += [(bookie_id, entry_id, 0) for entry_id in entry_ids]

    def on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        self.heard.append((bookie_id, entry_id, code))


def test_an_entry_that_is_sent_again_to_a_bookie_has_two_numbers_and_each_answer_its_own() -> None:
    """The first add waits for its timeout when the second one is answered."""
    notes, wire, writer = Notes(), ManyAtOnce(), Writer()
    transport = RecordingTransport(wire, notes.recorder, "writer", 1)  # type: ignore[arg-type]
    adds = adds_over(transport, AddTemplate(ledger_id=LEDGER, master_key=b"key"), writer)
    header = CODEC.encode_header(5, 4, 0, b"")
    adds.send(("b0", "b1"), 5, header, b"")
    adds.send(("b0", "b2"), 5, header, b"")
    assert wire.sent == [(0, ("b0", "b1"), 5), (0, ("b2",), 5), (1, ("b0",), 5)]
    wire.senders[1].on_adds_stored("b0", [5])
    wire.senders[0].on_add_failed("b0", 5, Code.TIMEOUT)
    wire.senders[0].on_adds_stored("b2", [5])
    told = [(kind, f["bookie"], f["request"]) for kind, _, _, f in notes.told()]
    assert told == [
        *(("ADD_SEND", "b0", 1), ("ADD_SEND", "b1", 2), ("ADD_SEND", "b2", 3), ("ADD_SEND", "b0", 4)),
        *(("ADD_RESP", "b0", 4), ("ADD_RESP", "b0", 1), ("ADD_RESP", "b2", 3)),
    ]
    assert writer.heard == [("b0", 5, 0), ("b0", 5, Code.TIMEOUT), ("b2", 5, 0)]


def test_numbers_of_what_is_not_recorded_are_not_used_up() -> None:
    notes = Notes()
    client = Client(notes)
    client.submit("b0", ForceLedgerRequest(LEDGER))
    client.submit("b0", ReadRequest(LEDGER, 3))
    assert [fields["request"] for _, _, _, fields in notes.told()] == [1]


# At bookies ---------------------------------------------------------------------------------------------------------


class Heard:
    """A :class:`simbookie.observed.RequestObserver`."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def request_arrived(self, request: object, source: str) -> int:
        self.told.append(("arrived", request, source))
        return len(self.told)

    def request_answered(self, arrival: int, status: Status) -> None:
        self.told.append(("answered", arrival, status))


async def test_a_bookie_tells_of_a_request_once_and_of_its_answer_whichever_way_it_comes() -> None:
    heard = Heard()
    bookie: Bookie = ObservedBookie("b0", MemoryStorage(disk=RecordLog()), requests=heard)
    add = AddRequest(LEDGER, 0, b"key", CODEC.encode_header(0, -1, 0, b"x"), b"x")
    answers: list[object] = []
    bookie.submit(add, answers.append, source="writer")
    assert not heard.told, "it has not started"
    bookie.start()
    assert not bookie.add(add, lambda token, _error: answers.append(token), "stored", "writer"), "a new ledger"
    bookie.submit(add, answers.append, source="writer")
    assert heard.told == [("arrived", add, "writer")]
    while len(answers) < 1:
        await _turn()
    second = AddRequest(LEDGER, 1, b"key", CODEC.encode_header(1, -1, 0, b"y"), b"y")
    assert bookie.add(second, lambda token, _error: answers.append(token), "stored", "writer")
    while len(answers) < 2:
        await _turn()
    assert answers[1] == "stored"
    assert heard.told[1:] == [("answered", 1, Status.OK), ("arrived", second, "writer"), ("answered", 3, Status.OK)]
    bookie.submit(ReadRequest(LEDGER, 9), answers.append, source="reader")
    while len(answers) < 3:
        await _turn()
    assert heard.told[-1] == ("answered", 5, Status.NO_ENTRY)
    bookie.crash()
    bookie.submit(add, answers.append, source="writer")
    assert len(heard.told) == 6, "nothing is told of a bookie that is dead"


async def _turn() -> None:
    await asyncio.sleep(0)


# In runs ------------------------------------------------------------------------------------------------------------


def by_request(events: Sequence[Event], *kinds: Kind) -> Counter[tuple[str, int]]:
    """How often each request has an event of these kinds, by its client and number."""
    named = (
        (e.fields["source"] if e.kind.startswith("BK_") else e.actor, e.fields["request"])
        for e in events
        if e.kind in kinds
    )
    return Counter(named)


SENDS = (Kind.ADD_SEND, Kind.FENCE_SEND, Kind.READ_SEND, Kind.REC_READ_SEND)
OUTCOMES = (Kind.ADD_RESP, Kind.FENCE_RESP, Kind.READ_RESP, Kind.REC_READ_RESP)


@pytest.mark.parametrize("scenario", ["rival-recoveries", "bookie-crash"])
def test_over_objects_every_arrival_is_known_and_every_number_used_once(scenario: str) -> None:
    events = play(scenario, 3).events
    sent, outcomes = by_request(events, *SENDS), by_request(events, *OUTCOMES)
    assert set(sent.values()) == set(outcomes.values()) == {1}
    arrivals = by_request(events, Kind.BK_RECV)
    assert arrivals.keys() <= sent.keys()
    assert by_request(events, Kind.BK_ANSWER).keys() <= arrivals.keys()
    assert len(arrivals) > 50


def test_over_bytes_most_arrivals_are_known_and_those_are_right(tmp_path: Path) -> None:
    """What a number says agrees with what is stored."""
    path = run_scenario("bookie-crash", 3, transport=TransportKind.BYTES, record=tmp_path).path
    events = read_history(Path(path))[1]
    arrivals = [event for event in events if event.kind == Kind.BK_RECV]
    known = [event for event in arrivals if event.fields["request"] is not None]
    assert len(known) > 0.8 * len(arrivals)
    sent = {(event.actor, event.fields["request"]): event for event in events if event.kind in SENDS}
    for event in known:
        request = sent[event.fields["source"], event.fields["request"]]
        assert request.seq < event.seq
        assert request.fields["bookie"] == event.actor


def test_a_history_without_numbers_is_paired_by_what_messages_are_about() -> None:
    """As recorders of earlier versions left it."""
    events = play("calm-writes", 0).events
    old = [
        Event(e.seq, e.time_us, e.actor, e.kind, e.ledger, {n: v for n, v in e.fields.items() if n != "request"})
        for e in events
        if e.kind not in {Kind.BK_RECV, Kind.BK_ANSWER}
    ]
    numbered = {(one.request, one.answer) for one in messages_of(events)}
    assert {(one.request, one.answer) for one in messages_of(old)} == numbered

"""No answer ever settles another request than its own: arbitrary interleavings over one connection, both versions.

A bookie may answer in any order, late, or not at all; requests expire meanwhile and are sent again. Every answer here is fed by
itself or in a chunk whose order is known, so the test knows whose answer each one is.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bkclient.ledger import DigestType
from bkclient.wire import v2, v3
from bkclient.wire.connection import ClientConnection, SentAdd
from bkclient.wire.entry import EntryCodec
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
    template_of,
)
from bkclient.wire.outstanding import KeyInUse, Outstanding
from bkclient.wire.runs import Runs
from bkclient.wire.server_connection import ServerConnection
from tests.bkclient.wire.made_runs import run_of

CODEC = EntryCodec(1, DigestType.CRC32C, b"")
KEY = CODEC.master_key
KINDS = ("add", "add for a write set", "recovery add", "read", "fencing read", "batch read")


def request_of(kind: str, entry_id: int) -> Request:
    match kind:
        case "read" | "fencing read":
            return ReadRequest(1, entry_id, KEY if kind == "fencing read" else None)
        case "batch read":
            return BatchReadRequest(1, max(entry_id, 0), 1, 100)
        case _:
            entry_id = max(entry_id, 0)
            header = CODEC.encode_header(entry_id, -1, 1, b"x")
            return AddRequest(1, entry_id, KEY, header, b"x", recovery=kind == "recovery add")


def response_to(request: Request, status: Status) -> Response:
    if isinstance(request, AddRequest):
        return AddResponse(status, request.ledger_id, request.entry_id)
    if isinstance(request, BatchReadRequest):
        return BatchReadResponse(status, request.ledger_id, request.entry_id)
    assert isinstance(request, ReadRequest)
    return ReadResponse(status, request.ledger_id, request.entry_id, b"body" if status is Status.OK else None)


class Conversation:
    """A connection and a bookie that answers what it is told to answer."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.txn_ids = itertools.count(1)
        self.connection: ClientConnection[int] = ClientConnection(version, txn_ids=self.txn_ids)
        self.wire = ServerConnection()
        self.now = 0.0
        self.serial = 0
        #: By serial number: at the bookie and not answered; without an outcome at the client.
        self.at_bookie: dict[int, ReceivedRequest] = {}
        self.open: dict[int, Request | int] = {}
        self.answered: list[ReceivedRequest] = []

    def send(self, kind: str, entry_id: int, wait: float) -> None:
        request = request_of(kind, entry_id)
        if self.version == 3 and kind == "batch read":
            return
        sent: Request | int = request
        if isinstance(request, AddRequest) and kind == "add for a write set":
            data, sent = self.send_add(request, self.now + wait), request.entry_id
        else:
            data = self.send_request(request, self.now + wait)
        if data is None:
            assert self.version == 2
            return
        (self.at_bookie[self.serial],) = self.wire.receive(data)
        self.open[self.serial] = sent
        self.serial += 1

    def send_request(self, request: Request, deadline: float) -> bytes | None:
        try:
            return b"".join(self.connection.send(request, self.serial, deadline))
        except KeyInUse:
            return None

    def send_add(self, request: AddRequest, deadline: float) -> bytes | None:
        encoder = (v2.AddPacketEncoder if self.version == 2 else v3.AddEncoder)(template_of(request))
        buffers, acknowledgement, size = encoder.encode(
            next(self.txn_ids), request.entry_id, request.header, request.payload
        )
        add = (request.entry_id, self.serial, deadline, size)
        return b"".join(buffers) if self.connection.send_add(acknowledgement, add) else None

    def send_run(self, entry_ids: list[int], wait: float) -> None:
        """Adds that follow each other, all with acknowledgements of one size, and with keys that are free."""
        adds: list[tuple[int, int, int, bytes]] = []
        for entry_id in entry_ids:
            request = request_of("add", entry_id)
            assert isinstance(request, AddRequest)
            key = v2.match_of(request)
            assert key is not None
            if not self.connection.is_free(key) or (self.version == 2 and entry_id in [add[0] for add in adds]):
                continue
            encoder = (v2.AddPacketEncoder if self.version == 2 else v3.AddEncoder)(template_of(request))
            buffers, acknowledgement, size = encoder.encode(
                next(self.txn_ids), entry_id, request.header, request.payload
            )
            if adds and len(adds[0][3]) != len(acknowledgement):
                break  # a number that no request has is harmless
            self.open[self.serial] = entry_id
            adds.append((entry_id, self.serial, size, acknowledgement))
            (self.at_bookie[self.serial],) = self.wire.receive(b"".join(buffers))
            self.serial += 1
        if adds:
            self.connection.send_run(run_of(adds, self.now + wait))

    def receive(self, data: bytes, cut: int) -> list[tuple[int, Request | int, Status]]:
        """What becomes of ``data``, of which ``cut`` bytes come first: serial numbers, what was sent, statuses."""
        got: list[tuple[int, Request | int, Status]] = []
        for piece in (data[:cut], data[cut:]):
            rest = piece
            while rest:
                free = self.connection.get_buffer()
                size = min(len(free), len(rest))
                free[:size] = rest[:size]
                rest = rest[size:]
                for serial, added in self.connection.buffer_updated(size):
                    got += [(serial, sent, Status.OK) for sent in (added if isinstance(added, list) else [added])]
                got += [(serial, sent, status) for sent, serial, status, _ in self.connection.answers()]
        return got

    def expire(self, seconds: float) -> None:
        self.now += seconds
        for request, serial in self.connection.expire(self.now):
            assert self.open.pop(serial) == request

    def answer(self, numbers: list[tuple[int, Status]], cut: int) -> None:
        """Answer some of what the bookie has, in the order given: one chunk, or two."""
        chunk, expected = b"", []
        for number, status in numbers:
            if not self.at_bookie:
                break
            serial = sorted(self.at_bookie)[number % len(self.at_bookie)]
            at_bookie = self.at_bookie.pop(serial)
            self.answered.append(at_bookie)
            assert at_bookie.request is not None
            chunk += self.wire.encode_response(at_bookie, response_to(at_bookie.request, status))
            if serial in self.open:
                expected.append((serial, self.open.pop(serial), status))
        assert self.receive(chunk, cut) == expected

    def repeat(self, number: int) -> None:
        """An answer that has come before. Over version 2 nothing tells it from a true one while its key is in use."""
        if self.answered and self.version == 3:
            at_bookie = self.answered[number % len(self.answered)]
            assert at_bookie.request is not None
            response = response_to(at_bookie.request, Status.NO_ENTRY)
            assert self.receive(self.wire.encode_response(at_bookie, response), 0) == []


def steps_of(kinds: tuple[str, ...]) -> st.SearchStrategy[list[tuple[object, ...]]]:
    """What may happen, with requests of these kinds."""
    return st.lists(
        st.one_of(
            st.tuples(
                st.just("send"),
                st.sampled_from(kinds),
                st.sampled_from([-1, 0, 1]),
                st.sampled_from([1.0, 2.0, 5.0, 100.0]),
            ),
            st.tuples(
                st.just("send_run"),
                st.lists(st.integers(0, 3), min_size=1, max_size=5),
                st.sampled_from([1.0, 2.0, 5.0, 100.0]),
            ),
            st.tuples(st.just("expire"), st.sampled_from([0.5, 1.0, 3.0])),
            st.tuples(
                st.just("answer"),
                st.lists(
                    st.tuples(
                        st.integers(0, 9), st.sampled_from([Status.OK, Status.OK, Status.NO_ENTRY, Status.IO_ERROR])
                    ),
                    min_size=1,
                    max_size=6,
                ),
                st.integers(0, 60),
            ),
            st.tuples(st.just("repeat"), st.integers(0, 9)),
        ),
        max_size=40,
    )


def play(version: int, steps: list[tuple[object, ...]]) -> None:
    conversation = Conversation(version)
    for name, *arguments in steps:
        getattr(conversation, str(name))(*arguments)
        assert conversation.connection.outstanding_requests == len(conversation.open)
        conversation.connection.check()
    assert sorted(serial for _, serial in conversation.connection.abandon()) == sorted(conversation.open)


@pytest.mark.parametrize("version", [2, 3])
@settings(deadline=None, max_examples=150)
@given(steps=steps_of(KINDS))
def test_no_answer_settles_another_request_than_its_own(version: int, steps: list[tuple[object, ...]]) -> None:
    play(version, steps)


def frees_at_once(self: Outstanding[object], key: bytes) -> None:
    """The defect: a key whose request was given up may be used again."""
    del self.entries[key]


def lets_others_pass(self: Outstanding[object], key: bytes, entry: object) -> None:
    """The defect: a second request takes a key over."""
    self.entries[key] = entry


def forgets_adds(self: Outstanding[object], key: bytes) -> None:
    """The defect: the key of an add that was given up may be used again."""


def lets_adds_pass(self: ClientConnection[int], acknowledgement: bytes, add: SentAdd[int]) -> bool:
    """The defect: a second add takes a key over."""
    self.adds[acknowledgement] = add
    self.load.put_on(add[3])
    return True


def has_none(self: Runs[int], acknowledgement: bytes) -> bool:
    """The defect: a key that an add in a run has counts as free."""
    return False


DEFECTS = [
    (Runs, "have", has_none, KINDS[:-3]),
    (Outstanding, "give_up", frees_at_once, KINDS[-3:]),
    (Outstanding, "add", lets_others_pass, KINDS[-3:]),
    (Outstanding, "never_mind", forgets_adds, KINDS[:-3]),
    (ClientConnection, "send_add", lets_adds_pass, KINDS[:-3]),
]


@pytest.mark.deep
@pytest.mark.parametrize(("owner", "name", "defect", "kinds"), DEFECTS, ids=[row[1] for row in DEFECTS])
def test_the_property_finds_a_key_that_is_used_again(
    owner: type, name: str, defect: object, kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, defect)

    @settings(deadline=None, max_examples=2000, database=None, phases=[Phase.generate])
    @given(steps=steps_of(kinds))
    def fails(steps: list[tuple[object, ...]]) -> None:
        play(2, steps)

    with pytest.raises(AssertionError):
        fails()

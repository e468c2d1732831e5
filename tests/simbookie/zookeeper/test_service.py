"""The service without sockets, with a clock of the test's: sessions, connections that take over, and what is sent when."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kazoo.protocol import serialization as codec
from kazoo.security import make_acl, make_digest_acl

from simbookie.zookeeper.acl import Identity
from simbookie.zookeeper.codes import ErrorCode, EventType
from simbookie.zookeeper.service import Limits, ZooKeeperService
from simbookie.zookeeper.sessions import Session

OPEN = [make_acl("world", "anyone", all=True)]
STARTED_S = 1_800_000_000.5


class Client:
    """Records what it is sent."""

    def __init__(self, service: ZooKeeperService) -> None:
        self.session: Session | None = None
        self.source = "192.0.2.1"
        self.identities: tuple[Identity, ...] = (Identity("ip", "127.0.0.1"),)
        self.has_ended = False
        self.is_connecting = True
        self.told: list[str] = []
        self.events = 0
        self._service = service

    def send(self, frame: bytes) -> None:
        if self.is_connecting:
            return
        header, offset = codec.ReplyHeader.deserialize(frame, 4)
        if header.xid == -1:
            event, _ = codec.Watch.deserialize(frame, offset)
            self.told.append(f"{EventType(event.type).name} {event.path}")
        else:
            self.told.append(f"reply {header.xid} {ErrorCode(header.err).name}")

    def notify(self, frame: bytes) -> None:
        self.events += 1
        self.send(frame)

    def end(self) -> None:
        self.has_ended = True

    def ask(self, request: Any, xid: int = 1) -> list[str]:
        """What is sent because of a request."""
        before = len(self.told)
        self._service.handle(self, struct.pack(">ii", xid, request.type) + bytes(request.serialize()))
        return self.told[before:]


class World:
    """A service, its clock and its clients."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.now = 0.0
        self.service = ZooKeeperService(
            now=lambda: self.now,
            wall_clock=lambda: STARTED_S + self.now,
            random_bytes=lambda size: b"p" * size,
            limits=limits or Limits(),
        )

    def client(self, timeout_s: float = 4.0, session: Session | None = None, seen: int = 0) -> Client:
        client = Client(self.service)
        known = (0, b"") if session is None else (session.session_id, session.password)
        request = codec.Connect(0, seen, int(timeout_s * 1000), *known, read_only=False)
        self.service.connect(client, bytes(request.serialize()))
        client.is_connecting = False
        return client


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_heard_of_a_client_keeps_its_session(world: World) -> None:
    lively, silent = world.client(), world.client()
    for _ in range(5):
        world.now += 1.0
        assert lively.ask(codec.PingInstance, xid=-2) == ["reply -2 OK"]
        world.service.expire()
    assert world.service.expire() == 9.0
    assert silent.has_ended
    assert not lively.has_ended
    assert len(world.service.sessions) == 1


def test_ephemeral_znodes_end_with_their_session_and_this_is_told(world: World) -> None:
    owner, watcher = world.client(), world.client(timeout_s=50)
    owner.ask(codec.Create("/a", b"", OPEN, 1))
    watcher.ask(codec.Exists("/a", watcher=True))
    watcher.ask(codec.GetChildren("/", watcher=True))
    watcher.told.clear()
    world.now = 4.0
    world.service.expire()
    assert watcher.told == ["DELETED /a", "CHILDREN_CHANGED /"]
    assert watcher.ask(codec.Exists("/a", watcher=False)) == ["reply 1 NO_NODE"]


def test_a_lost_connection_costs_watches_and_no_znodes(world: World) -> None:
    client = world.client()
    session = client.session
    client.ask(codec.Create("/a", b"", OPEN, 1))
    client.ask(codec.GetData("/a", watcher=True))
    world.service.disconnect(client)
    assert len(world.service.watches) == 0
    world.now = 3.0
    again = world.client(session=session)
    assert again.session is session
    assert again.ask(codec.Exists("/a", watcher=False)) == ["reply 1 OK"]
    world.now = 6.9
    assert world.service.expire() == 7.0


def test_a_session_is_at_the_connection_it_came_with_last(world: World) -> None:
    first = world.client()
    session = first.session
    second = world.client(session=session)
    assert first.has_ended
    assert first.session is None
    world.service.disconnect(first)
    world.now = 4.0
    world.service.expire()
    assert second.has_ended


def test_an_event_comes_before_the_reply_of_the_request_that_caused_it(world: World) -> None:
    client = world.client()
    client.ask(codec.Exists("/a", watcher=True))
    assert client.ask(codec.Create("/a", b"", OPEN, 0)) == ["CREATED /a", "reply 1 OK"]
    client.ask(codec.GetData("/a", watcher=True))
    transaction = codec.Transaction([codec.SetData("/a", b"x", -1), codec.Delete("/b", -1)])
    assert client.ask(transaction) == ["reply 1 OK"], "a transaction that failed changed nothing"
    assert client.ask(codec.SetData("/a", b"x", -1)) == ["DATA_CHANGED /a", "reply 1 OK"]


def test_what_a_client_may_not_read_it_is_not_told(world: World) -> None:
    ann, bob = world.client(), world.client()
    assert ann.ask(codec.Auth(0, "digest", "ann:secret"), xid=-4) == ["reply -4 OK"]
    for client in (ann, bob):
        client.ask(codec.Exists("/a", watcher=True))
        client.told.clear()
    ann.ask(codec.Create("/a", b"", [make_digest_acl("ann", "secret", all=True)], 0))
    assert (ann.events, bob.events) == (1, 0)
    assert bob.ask(codec.GetData("/a", watcher=False)) == ["reply 1 NO_AUTH"]
    assert bob.ask(codec.GetACL("/a")) == ["reply 1 NO_AUTH"]


@pytest.mark.parametrize(("scheme", "credentials"), [("sasl", "x"), ("digest", "ann:" + "x" * 1024), ("", "")])
def test_what_proves_nothing_ends_the_connection(world: World, scheme: str, credentials: str) -> None:
    client = world.client()
    try:
        told = client.ask(codec.Auth(0, scheme, credentials), xid=-4)
    except ValueError:  # kazoo writes no text for an empty one
        assert scheme == ""
        return
    assert told == ["reply -4 AUTH_FAILED"]
    assert client.has_ended


def test_identities_are_bounded(world: World) -> None:
    client = world.client()
    while not client.has_ended:
        client.ask(codec.Auth(0, "digest", f"ann:{len(client.told)}"), xid=-4)
    assert len(client.identities) == 16


def test_clients_of_a_server_that_is_gone_learn_that_their_sessions_are(world: World) -> None:
    client = world.client()
    client.ask(codec.Create("/a", b"", OPEN, 0))
    session, seen = client.session, world.service.zxid
    successor = World()
    successor.service = ZooKeeperService(
        now=lambda: 0.0, wall_clock=lambda: STARTED_S + 2, random_bytes=lambda size: b"q" * size, limits=Limits()
    )
    again = successor.client(session=session, seen=seen)
    assert again.session is None
    assert successor.client(seen=seen).session is not None
    assert world.client(seen=successor.service.zxid).session is None, "a server that lags behind is of no use"


def test_all_sessions_have_their_time_again_after_a_pause(world: World) -> None:
    client = world.client()
    world.now = 100.0
    world.service.renew_sessions()
    assert world.service.expire() == 104.0
    assert not client.has_ended


def test_empty_containers_are_removed_and_this_is_told(world: World) -> None:
    client = world.client()
    client.ask(codec.Create("/plain", b"", OPEN, 0))
    body = bytes(codec.Create2("/box", b"", OPEN, 4).serialize())
    world.service.handle(client, struct.pack(">ii", 1, 19) + body)
    client.ask(codec.Create("/box/a", b"", OPEN, 0))
    client.ask(codec.Exists("/box", watcher=True))
    world.service.remove_empty_containers()
    client.ask(codec.Delete("/box/a", -1))
    client.told.clear()
    world.service.remove_empty_containers()
    world.service.remove_empty_containers()
    assert client.told == ["DELETED /box"]


def test_a_listener_hears_of_requests_before_their_replies_and_of_those_that_fail(world: World) -> None:
    client, heard = world.client(), []

    def listen(who: object, request: object, code: ErrorCode) -> None:
        heard.append((who is client, type(request).__name__, code, len(client.told)))

    world.service.on_request = listen
    for _ in range(2):
        client.ask(codec.Create("/a", b"", OPEN, 0))
    assert heard == [(True, "Create", ErrorCode.OK, 0), (True, "Create", ErrorCode.NODE_EXISTS, 1)]


def test_sessions_can_be_ended_as_if_they_had_expired(world: World) -> None:
    client, other = world.client(), world.client()
    client.ask(codec.Create("/gone", b"", OPEN, 1))
    other.ask(codec.Create("/stays", b"", OPEN, 1))
    assert world.service.end_sessions(lambda known: known is client) == 1
    assert client.has_ended
    assert not other.has_ended
    assert world.service.tree.find("/gone") is None
    assert world.service.tree.find("/stays") is not None

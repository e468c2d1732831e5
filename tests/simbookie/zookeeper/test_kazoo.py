"""kazoo and its recipes, which lean on everything at once, do on the embedded ZooKeeper what they do on ZooKeeper itself."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.protocol.states import KazooState

from tests.zookeepers import AnyZooKeeper, EmbeddedInThread

PATIENCE_S = 20


@pytest.fixture
def clients(zookeeper_server: AnyZooKeeper, zookeeper_root: str) -> Iterator[list[KazooClient]]:
    with ExitStack() as stack:
        started: list[KazooClient] = []
        for _ in range(2):
            client = stack.enter_context(closing(KazooClient(zookeeper_server.address, timeout=5)))
            client.start(timeout=PATIENCE_S)
            stack.callback(client.stop)
            client.ensure_path(zookeeper_root)
            client.chroot = zookeeper_root
            started.append(client)
        yield started


def test_a_lock_has_one_holder(clients: list[KazooClient]) -> None:
    mine, other = (client.Lock("/lock", name) for client, name in zip(clients, ("ann", "bob"), strict=True))
    with mine:
        with pytest.raises(LockTimeout):
            other.acquire(timeout=0.2)
        assert clients[1].Lock("/lock").contenders() == ["ann"]
        waiting = threading.Thread(target=other.acquire)
        waiting.start()
    waiting.join(PATIENCE_S)
    assert other.is_acquired
    other.release()


def test_an_election_is_won_by_the_next_when_the_leader_is_gone(clients: list[KazooClient]) -> None:
    led: queue.Queue[str] = queue.Queue()
    may_resign = threading.Event()

    def lead(name: str) -> None:
        led.put(name)
        may_resign.wait(PATIENCE_S)

    threads = []
    for client, name in zip(clients, ("ann", "bob"), strict=True):
        threads.append(threading.Thread(target=client.Election("/election", name).run, args=(lead, name)))
        threads[-1].start()
        if name == "ann":
            assert led.get(timeout=PATIENCE_S) == "ann"
    may_resign.set()
    assert led.get(timeout=PATIENCE_S) == "bob"
    for thread in threads:
        thread.join(PATIENCE_S)


def test_counters_count_together(clients: list[KazooClient]) -> None:
    def count(client: KazooClient) -> None:
        counter = client.Counter("/count")
        for _ in range(20):
            counter += 1

    threads = [threading.Thread(target=count, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert clients[0].Counter("/count").value == 40


def test_watches_follow_what_others_change(clients: list[KazooClient]) -> None:
    reader, writer = clients
    heard: queue.Queue[object] = queue.Queue()
    reader.DataWatch("/data", lambda data, _: heard.put(data))
    assert heard.get(timeout=PATIENCE_S) is None
    writer.create("/data", b"one")
    assert heard.get(timeout=PATIENCE_S) == b"one"
    writer.set("/data", b"two")
    assert heard.get(timeout=PATIENCE_S) == b"two"
    reader.ChildrenWatch("/data", lambda names: heard.put(sorted(names)))
    assert heard.get(timeout=PATIENCE_S) == []
    for number in range(2):
        writer.create(f"/data/{number}")
        assert heard.get(timeout=PATIENCE_S) == [str(number) for number in range(number + 1)]


def test_a_client_comes_back_with_its_session_znodes_and_watches(clients: list[KazooClient]) -> None:
    client, other = clients
    heard: queue.Queue[object] = queue.Queue()
    states: queue.Queue[str] = queue.Queue()
    client.add_listener(states.put)
    client.create("/mine", b"", ephemeral=True)
    client.DataWatch("/awaited", lambda data, _: heard.put(data))
    assert heard.get(timeout=PATIENCE_S) is None
    session = client.client_id
    client._connection._socket.shutdown(2)
    assert states.get(timeout=PATIENCE_S) == KazooState.SUSPENDED
    assert states.get(timeout=PATIENCE_S) == KazooState.CONNECTED
    assert client.client_id == session
    assert other.exists("/mine")
    other.create("/awaited", b"here")
    while heard.get(timeout=PATIENCE_S) != b"here":  # kazoo may read once more after it came back
        pass


def test_it_serves_on_uvloop_too() -> None:
    uvloop = pytest.importorskip("uvloop")
    with EmbeddedInThread(uvloop.new_event_loop) as server, closing(KazooClient(server.address)) as client:
        client.start(timeout=PATIENCE_S)
        client.create("/a", b"x" * 900_000)
        pending = [client.get_async("/a") for _ in range(50)]  # more than a client's system takes at once
        assert {len(answer.get(timeout=PATIENCE_S)[0]) for answer in pending} == {900_000}
        client.stop()

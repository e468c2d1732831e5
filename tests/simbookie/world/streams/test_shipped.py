"""The shipped transport, codecs and server in virtual time, against the transport and the bookies that pass objects."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bkclient import BookKeeper, ClientConfig, ConnectionSettings, TimeoutSettings
from bkclient.errors import BookKeeperError, Code
from bkclient.metadata.base import BookieAddress
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.wire.messages import AddRequest, ReadRequest, ReadResponse, Request, Response
from simbookie.server import ServerConfig
from simbookie.storage.base import CrashMode
from simbookie.world.bookie_host import BookieHost
from simbookie.world.hosts import Host, World
from simbookie.world.links import NetworkConfig, TcpConfig
from simbookie.world.metadata import SimulatedMetadataStore

WIRES = [pytest.param(2, id="v2"), pytest.param(3, id="v3")]


def header(entry_id: int) -> bytes:
    return struct.pack(">qqqq", 1, entry_id, entry_id - 1, 0)


def add(entry_id: int, payload: bytes = b"payload") -> AddRequest:
    return AddRequest(1, entry_id, b"k" * 20, header(entry_id), payload)


class Bench:
    """A client's host with the shipped transport, and a bookie behind the shipped server."""

    def __init__(self, *, tcp: TcpConfig | None = None, server: ServerConfig | None = None, **config: Any) -> None:
        self.world = World(1, tcp=tcp)
        self.network = self.world.network
        self.client = Host(self.world, "client")
        self.bookie = BookieHost(self.world, "b0", server=server or ServerConfig())
        self.config = TcpTransportConfig(**config)
        self.transport: TcpTransport
        self.codes: list[int] = []
        self.times: list[float] = []
        self.answers: list[Response | None] = []

    async def resolve(self, bookie_id: str) -> BookieAddress:
        return BookieAddress(bookie_id, 3181)

    def submit(self, request: Request) -> None:
        before = len(self.codes)
        self.transport.submit("b0", request, self.note)
        assert len(self.codes) == before, "the handler was called from within submit"

    def note(self, _bookie_id: str, _request: Request, code: int, response: Response | None) -> None:
        self.codes.append(code)
        self.answers.append(response)
        self.times.append(self.world.loop.time())

    def play(self, story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def program() -> None:
            self.transport = TcpTransport(self.resolve, self.config, rng=self.world.rng("transport"))
            await story(self)

        async def main() -> None:
            await self.bookie.registered()
            await self.world.join(self.client.spawn(program))

        with self.world:
            self.world.run(main)


Break = Callable[[Bench], object]

FAULTS: list[tuple[str, bool, Break, Code, float, float]] = [
    # what happens, whether a connection stands before, outcome, earliest and latest time: as with objects, but for the twentieth
    # of a timeout that one may be noticed late
    ("nothing", False, lambda _: None, Code.OK, 0.0, 0.01),
    ("nothing, connected", True, lambda _: None, Code.OK, 0.0, 0.01),
    ("nobody listens", False, lambda b: b.bookie.crash(), Code.BOOKIE_NOT_AVAILABLE, 0.0, 0.01),
    ("crash", True, lambda b: b.bookie.crash(), Code.BOOKIE_NOT_AVAILABLE, 0.0, 0.01),
    ("power loss", False, lambda b: b.bookie.crash(CrashMode.POWER_LOSS), Code.BOOKIE_NOT_AVAILABLE, 7.0, 7.1),
    ("power loss, connected", True, lambda b: b.bookie.crash(CrashMode.POWER_LOSS), Code.TIMEOUT, 2.0, 2.2),
    ("no way there", False, lambda b: b.network.block("client", "b0"), Code.BOOKIE_NOT_AVAILABLE, 7.0, 7.1),
    ("no way back", False, lambda b: b.network.block("b0", "client"), Code.BOOKIE_NOT_AVAILABLE, 7.0, 7.1),
    ("no way there, connected", True, lambda b: b.network.block("client", "b0"), Code.TIMEOUT, 2.0, 2.2),
    ("no way back, connected", True, lambda b: b.network.block("b0", "client"), Code.TIMEOUT, 2.0, 2.2),
    ("pause", True, lambda b: b.bookie.pause(), Code.TIMEOUT, 2.0, 2.2),
    ("reset", True, lambda b: b.network.reset_connections("client", "b0"), Code.BOOKIE_NOT_AVAILABLE, 0.0, 0.01),
    ("client closed", True, lambda b: b.client.spawn(b.transport.aclose), Code.CLIENT_CLOSED, 0.0, 0.01),
]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("connected", "fault", "code", "earliest", "latest"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS]
)
@pytest.mark.rule("W-47")
def test_every_request_ends_exactly_once_whatever_happens(
    wire: int, connected: bool, fault: Break, code: Code, earliest: float, latest: float
) -> None:
    async def story(bench: Bench) -> None:
        if connected:
            bench.submit(add(0))
            await asyncio.sleep(0.5)
            assert bench.codes == [Code.OK]
            bench.codes.clear()
            bench.times.clear()
        started = bench.world.loop.time()
        fault(bench)
        bench.submit(add(1))
        await asyncio.sleep(60)
        assert bench.codes == [code]
        assert earliest <= bench.times[0] - started <= latest

    Bench(protocol_version=wire, add_timeout_s=2.0, read_timeout_s=3.0, connect_timeout_s=7.0).play(story)


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_that_timed_out_on_a_cut_link_is_carried_out_when_the_link_is_whole_again(wire: int) -> None:
    async def story(bench: Bench) -> None:
        bench.submit(add(0))
        await asyncio.sleep(1)
        bench.network.block("client", "b0")
        bench.submit(add(1))
        await asyncio.sleep(30)
        bench.network.heal()
        await asyncio.sleep(1)
        bench.submit(ReadRequest(1, 1))
        await asyncio.sleep(1)
        assert bench.codes == [Code.OK, Code.TIMEOUT, Code.OK]
        answer = bench.answers[-1]
        assert isinstance(answer, ReadResponse)
        assert answer.body == header(1) + b"payload"

    Bench(protocol_version=wire, add_timeout_s=2.0).play(story)


@pytest.mark.parametrize("mode", list(CrashMode))
def test_the_transport_comes_back_to_a_bookie_that_was_killed(mode: CrashMode) -> None:
    async def story(bench: Bench) -> None:
        bench.submit(add(0))
        await asyncio.sleep(1)
        bench.bookie.crash(mode)
        bench.bookie.restart()
        await asyncio.sleep(1)
        for entry_id in range(1, 4):
            bench.submit(add(entry_id))
            await asyncio.sleep(20)
        lost = [Code.BOOKIE_NOT_AVAILABLE] * (mode is CrashMode.POWER_LOSS)  # the old connection is found dead only now
        assert bench.codes == [Code.OK, *lost, *[Code.OK] * (3 - len(lost))]
        assert bench.transport.connections == {"b0": 2}

    Bench().play(story)


def test_a_bookie_that_does_not_take_its_requests_pushes_back_to_the_transport() -> None:
    """Kernels on both sides take what they have room for, then the client's transport says that it is not writable (W-7)."""

    async def story(bench: Bench) -> None:
        bench.submit(add(0))
        await asyncio.sleep(1)
        bench.bookie.pause()
        for entry_id in range(1, 40):
            bench.submit(add(entry_id, b"x" * 1_000))
        await asyncio.sleep(0.1)
        assert not bench.transport.is_writable("b0")
        assert bench.transport.pending_requests("b0") == 39
        bench.bookie.resume()
        await asyncio.sleep(0.5)
        assert bench.transport.is_writable("b0")
        assert bench.codes == [Code.OK] * 40

    Bench(
        tcp=TcpConfig(send_buffer_bytes=2_000, receive_buffer_bytes=3_000),
        write_buffer_high_water_bytes=4_000,
        write_buffer_low_water_bytes=1_000,
    ).play(story)


def test_a_client_that_does_not_take_its_answers_is_not_read_from_and_is_dropped_in_the_end() -> None:
    bench = Bench(
        tcp=TcpConfig(send_buffer_bytes=2_000, receive_buffer_bytes=3_000),
        server=ServerConfig(answers_timeout_s=3.0),
        read_timeout_s=100.0,
    )

    async def main() -> None:
        await bench.bookie.registered()

        async def program() -> None:
            bench.transport = TcpTransport(bench.resolve, bench.config, rng=bench.world.rng("transport"))
            bench.submit(add(0, b"x" * 10_000))
            await asyncio.sleep(1)
            for _ in range(30):
                bench.submit(ReadRequest(1, 0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            bench.client.pause()
            await asyncio.sleep(20)

        task = bench.client.spawn(program)
        await asyncio.sleep(2)
        server = bench.bookie.server
        assert server is not None
        assert server.connections == 1
        await asyncio.sleep(8)
        assert server.connections == 0, "it took none of its answers for 3 s"
        bench.client.resume()
        await bench.world.join(task)
        assert len(bench.codes) == 31
        assert bench.codes[-1] == Code.BOOKIE_NOT_AVAILABLE

    with bench.world:
        bench.world.run(main)


SEGMENTS = {
    "whole": TcpConfig(),
    "one byte each": TcpConfig(segment_bytes=1),
    "cut anywhere": TcpConfig(segment_bytes=200, cut_probability=0.8),
    "tiny buffers": TcpConfig(send_buffer_bytes=100, receive_buffer_bytes=70, bandwidth=1_000_000),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("segments", SEGMENTS)
def test_a_ledger_is_written_taken_over_and_read_however_its_bytes_are_cut(segments: str, wire: int) -> None:
    network = NetworkConfig(loss_probability=0.01, slow_probability=0.02)
    world = World(2, network=network, tcp=SEGMENTS[segments])
    hosts = {name: BookieHost(world, name, server=ServerConfig()) for name in ("b0", "b1", "b2", "b3")}
    payloads = [bytes([number]) * (number * 37 % 130) for number in range(60)]

    async def client(name: str) -> tuple[BookKeeper, SimulatedMetadataStore]:
        store = SimulatedMetadataStore(world, world.hosts[name])
        config = ClientConfig(
            connections=ConnectionSettings(protocol_version=wire), timeouts=TimeoutSettings(add_s=1.0, read_s=1.0)
        )
        transport = TcpTransport(
            store.bookie_address, TcpTransportConfig.of_client(config), rng=world.rng(f"transport {name}")
        )
        return BookKeeper(store, transport, config=config, rng=world.rng(name)), store

    async def write() -> int:
        bk, _ = await client("writer")
        async with bk:
            writer = await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            for payload in payloads[:30]:
                await writer.append(payload)
            hosts["b1"].crash(CrashMode.PROCESS)
            for payload in payloads[30:]:
                await writer.append(payload)
            world.hosts["writer"].crash()
        raise AssertionError("the dead go on")

    async def read() -> list[bytes]:
        bk, store = await client("reader")
        found: list[bytes] = []
        async with bk:
            (ledger_id,) = [each async for each in bk.list_ledgers()]
            while True:
                try:
                    reader = await bk.open_ledger(ledger_id, recover=True)
                    found = [entry.payload async for entry in reader]
                    break
                except BookKeeperError:
                    await asyncio.sleep(1)
        await store.aclose()
        return found

    async def main() -> list[bytes]:
        for host in hosts.values():
            await host.registered()
        writer = Host(world, "writer").spawn(write)
        await world.join(writer)
        reader = Host(world, "reader").spawn(read)
        await world.join(reader)
        return reader.result()

    with world:
        assert world.run(main) == payloads


def test_an_orderly_stop_answers_and_closes_connections() -> None:
    async def story(bench: Bench) -> None:
        bench.submit(add(0))
        await asyncio.sleep(1)
        bench.submit(add(1))
        await asyncio.sleep(0)
        bench.world.loop.create_task(bench.bookie.stop())
        await asyncio.sleep(5)
        assert bench.codes[0] == Code.OK
        assert len(bench.codes) == 2
        bench.submit(add(2))
        await asyncio.sleep(5)
        assert bench.codes[2] == Code.BOOKIE_NOT_AVAILABLE
        assert not bench.bookie.is_alive

    Bench().play(story)

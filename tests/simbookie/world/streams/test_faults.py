"""What hosts and links that fail do to connections: what TCP shows of it, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket as socket_names
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from simbookie.storage.base import CrashMode
from simbookie.world.errors import RealWorldRefused, WorldError
from simbookie.world.hosts import Host, World
from simbookie.world.links import NetworkConfig, TcpConfig
from simbookie.world.loop import VirtualTimeLoop
from simbookie.world.tcp_socket import Socket
from tests.simbookie.world.streams.parts import AnyNoting, Noting, NotingBuffered

ROOT = Path(__file__).parents[4]
PORT = 3181


class Bench:
    """A client's host and a server's, with a connection between them; ``near`` and ``far`` are its protocols."""

    def __init__(self, *, seed: int = 1, tcp: TcpConfig | None = None, network: NetworkConfig | None = None) -> None:
        self.world = World(seed, tcp=tcp, network=network)
        self.network = self.world.network
        self.client, self.server = Host(self.world, "client"), Host(self.world, "server")
        self.accepted: list[Noting] = []
        self.near: AnyNoting
        self.far: AnyNoting

    async def listen(self, backlog: int = 100) -> asyncio.AbstractServer:
        """Listen on the server's host, in its present life."""

        def factory() -> Noting:
            self.accepted.append(Noting())
            return self.accepted[-1]

        async def serve() -> asyncio.AbstractServer:
            return await asyncio.get_running_loop().create_server(factory, None, PORT, backlog=backlog)

        return await self.server.spawn(serve)

    def dial(self, factory: Callable[[], AnyNoting] = Noting, host: str = "server") -> asyncio.Task[Any]:
        """Connect from the client's host."""

        async def connect() -> Any:
            return (await asyncio.get_running_loop().create_connection(factory, host, PORT))[1]

        return self.client.spawn(connect)

    async def connect(self) -> None:
        await self.listen()
        self.near = await self.dial()
        await asyncio.sleep(0.1)
        self.far = self.accepted[0]
        assert self.far.events == ["made"]

    def play(self, story: Callable[[Bench], Coroutine[Any, Any, None]], *, connected: bool = True) -> None:
        async def main() -> None:
            if connected:
                await self.connect()
            await story(self)

        with self.world:
            self.world.run(main)

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def write(self, data: bytes) -> None:
        """Write from the client's process."""
        self.world.loop.enter(self.client.process, self.near.transport.write, data)


async def test_a_loop_without_a_world_has_no_connections() -> None:
    loop = VirtualTimeLoop()

    async def main() -> None:
        await loop.create_connection(Noting, "server", 1)

    def run() -> None:
        with pytest.raises(RealWorldRefused, match="create_connection"):
            loop.run_until_complete(main())
        loop.close()

    await asyncio.to_thread(run)


def test_the_director_has_no_host_to_connect_from() -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(WorldError, match="belongs to no host"):
            await bench.world.loop.create_connection(Noting, "server", PORT)
        with pytest.raises(WorldError, match="belongs to no host"):
            await bench.world.loop.create_server(Noting, None, PORT)

    Bench().play(story)


def test_what_the_world_does_not_have_is_refused_by_name() -> None:
    async def story(bench: Bench) -> None:
        async def secure() -> None:
            await bench.world.loop.create_connection(Noting, "server", PORT, ssl=True)

        async def elsewhere() -> None:
            await bench.world.loop.create_server(Noting, "client", PORT)

        async def watch() -> None:
            bench.world.loop.add_reader(0, print)

        with pytest.raises(WorldError, match="create_connection: ssl is not"):
            await bench.client.spawn(secure)
        with pytest.raises(OSError, match="not a name of the host 'server'"):
            await bench.server.spawn(elsewhere)
        with pytest.raises(RealWorldRefused, match="add_reader"):
            await bench.client.spawn(watch)

    Bench().play(story)


def test_a_name_that_no_host_has_is_not_found() -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(OSError, match="not known: 'nowhere'"):
            await bench.dial(host="nowhere")

    Bench().play(story)


def test_nobody_listens() -> None:
    async def story(bench: Bench) -> None:
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                await bench.dial()
            assert bench.now < 0.01
            if bench.server.is_alive:
                bench.server.crash()
        assert bench.world.tcp.counters.refused == 2

    Bench().play(story, connected=False)


def cut_there(bench: Bench) -> None:
    bench.network.block("client", "server")


def cut_back(bench: Bench) -> None:
    bench.network.block("server", "client")


def lose_power(bench: Bench) -> None:
    bench.server.crash(CrashMode.POWER_LOSS)


@pytest.mark.parametrize("silence", [cut_there, cut_back, lose_power])
def test_an_attempt_that_nobody_answers_times_out(silence: Callable[[Bench], None]) -> None:
    async def story(bench: Bench) -> None:
        await bench.listen()
        silence(bench)
        with pytest.raises(TimeoutError):
            await bench.dial()
        assert bench.now == pytest.approx(127, abs=0.1)
        assert bench.accepted == [] or silence is cut_back

    Bench().play(story, connected=False)


def test_an_attempt_succeeds_when_the_link_is_whole_again_in_time() -> None:
    async def story(bench: Bench) -> None:
        await bench.listen()
        bench.network.partition(("client",), ("server",))
        attempt = bench.dial()
        await asyncio.sleep(5)
        assert not attempt.done()
        bench.network.heal()
        assert (await attempt).events == ["made"]
        assert bench.now == pytest.approx(7, abs=0.01), "attempts are repeated after 1, 2, 4, ... seconds"
        await asyncio.sleep(1)
        assert [end.events for end in bench.accepted] == [["made"]]

    Bench().play(story, connected=False)


def test_a_full_queue_of_connections_lets_further_ones_wait() -> None:
    async def story(bench: Bench) -> None:
        await bench.listen(backlog=2)
        bench.server.pause()
        attempts = [bench.dial() for _ in range(3)]
        await asyncio.sleep(10)
        assert [attempt.done() for attempt in attempts] == [True, True, False], "the kernel connects, paused or not"
        bench.server.resume()
        await asyncio.sleep(30)
        assert attempts[2].done()
        assert len(bench.accepted) == 3

    Bench().play(story, connected=False)


@pytest.mark.parametrize("both", [False, True])
def test_a_blocked_link_delays_bytes_and_loses_none(both: bool) -> None:
    async def story(bench: Bench) -> None:
        bench.network.block("client", "server")
        if both:
            bench.network.block("server", "client")
        for number in range(10):
            bench.write(b"%d" % number)
            await asyncio.sleep(1)
        assert bench.far.received == b""
        bench.network.heal()
        await asyncio.sleep(0.1)
        assert bytes(bench.far.received) == b"0123456789"
        assert bench.near.events == ["made"]

    Bench().play(story)


def test_bytes_under_way_when_the_link_is_blocked_arrive_later() -> None:
    async def story(bench: Bench) -> None:
        bench.write(b"first")
        cut_there(bench)
        await asyncio.sleep(10)
        assert bench.far.received == b""
        bench.network.heal()
        bench.write(b" second")
        await asyncio.sleep(1)
        assert bytes(bench.far.received) == b"first second"

    Bench().play(story)


def test_what_is_lost_or_out_of_order_arrives_whole_and_later() -> None:
    data = bytes(range(256)) * 200

    async def story(bench: Bench) -> None:
        for start in range(0, len(data), 512):
            bench.write(data[start : start + 512])
        await bench.far.until_received(len(data))
        assert bytes(bench.far.received) == data
        assert bench.world.tcp.counters.retransmitted > 5
        assert bench.now > 0.3, "whatever is lost is waited for"

    network = NetworkConfig(loss_probability=0.2, duplicate_probability=0.2, slow_probability=0.2, fifo=False)
    Bench(network=network).play(story)


def test_bandwidth_is_shared_by_what_goes_one_way() -> None:
    async def story(bench: Bench) -> None:
        began = bench.now
        bench.write(b"x" * 50_000)
        await bench.far.until_received(50_000)
        assert bench.now - began == pytest.approx(5, abs=0.1)
        began = bench.now
        bench.world.loop.enter(bench.server.process, bench.far.transport.write, b"y" * 10_000)
        await bench.near.until_received(10_000)
        assert bench.now - began == pytest.approx(1, abs=0.1)

    Bench(tcp=TcpConfig(bandwidth=10_000)).play(story)


@pytest.mark.parametrize("segment_bytes", [1, 2, 7, 1448])
def test_segments_are_no_larger_than_they_may_be(segment_bytes: int) -> None:
    async def story(bench: Bench) -> None:
        sizes: list[int] = []
        bench.far.took = lambda data: sizes.append(len(data))  # type: ignore[method-assign]
        bench.write(b"z" * 100)
        await asyncio.sleep(1)
        assert sum(sizes) == 100
        assert sizes == [min(segment_bytes, 100)] * (100 // min(segment_bytes, 100)) + (
            [100 % segment_bytes] if segment_bytes == 7 else []
        )

    Bench(tcp=TcpConfig(segment_bytes=segment_bytes)).play(story)


def test_segments_are_cut_at_every_byte_sooner_or_later() -> None:
    async def story(bench: Bench) -> None:
        cuts: set[int] = set()
        sizes: list[int] = []
        bench.far.took = lambda data: sizes.append(len(data))  # type: ignore[method-assign]
        for _ in range(200):
            sizes.clear()
            bench.write(b"0123456789")
            await asyncio.sleep(0.1)
            assert sum(sizes) == 10
            cuts.add(sizes[0])
        assert cuts == set(range(1, 11))

    Bench(tcp=TcpConfig(cut_probability=0.7)).play(story)


def test_the_kernel_of_a_paused_process_takes_what_it_has_room_for() -> None:
    async def story(bench: Bench) -> None:
        bench.server.pause()
        bench.write(b"x" * 10_000)
        await asyncio.sleep(100)
        assert bench.near.transport.get_write_buffer_size() == 10_000 - 1_000 - 2_000
        assert bench.far.received == b""
        bench.server.resume()
        await bench.far.until_received(10_000)
        assert bench.near.transport.get_write_buffer_size() == 0

    Bench(tcp=TcpConfig(send_buffer_bytes=1_000, receive_buffer_bytes=2_000)).play(story)


def test_what_a_paused_process_was_sent_waits_for_it_and_so_does_the_end() -> None:
    async def story(bench: Bench) -> None:
        bench.server.pause()
        bench.write(b"waiting")
        bench.world.loop.enter(bench.client.process, bench.near.transport.close)
        await asyncio.sleep(10)
        assert bench.near.events == ["made", "lost"], "the process that closed is done"
        assert bench.far.events == ["made"]
        bench.server.resume()
        await asyncio.sleep(0)
        await bench.far.until_told("lost")
        assert bench.far.events == ["made", "data", "end", "lost"]
        assert bytes(bench.far.received) == b"waiting"

    Bench().play(story)


def test_the_kernel_of_a_killed_process_ends_its_streams() -> None:
    async def story(bench: Bench) -> None:
        bench.write(b"last words")
        bench.client.crash()
        await asyncio.sleep(1)
        assert bench.far.events == ["made", "data", "end", "lost"]
        assert bytes(bench.far.received) == b"last words"
        assert bench.near.events == ["made"], "the killed process is told nothing"

    Bench().play(story)


def test_the_kernel_of_a_killed_process_resets_what_it_had_not_read() -> None:
    async def story(bench: Bench) -> None:
        bench.server.pause()
        bench.write(b"never read")
        await asyncio.sleep(1)
        bench.server.crash()
        await asyncio.sleep(1)
        assert bench.near.events == ["made", "lost"]
        assert isinstance(bench.near.error, ConnectionResetError)

    Bench().play(story)


def test_nobody_hears_of_a_machine_without_power_until_it_is_back() -> None:
    async def story(bench: Bench) -> None:
        bench.server.crash(CrashMode.POWER_LOSS)
        bench.write(b"anybody there?")
        await asyncio.sleep(3600)
        assert bench.near.events == ["made"], "half-open"
        bench.server.restart()
        await asyncio.sleep(1)
        assert bench.near.events == ["made", "lost"]
        assert isinstance(bench.near.error, ConnectionResetError)
        await bench.listen()
        again = await bench.dial()
        again.transport.write(b"new")
        await asyncio.sleep(1)
        assert bytes(bench.accepted[-1].received) == b"new"

    Bench().play(story)


def test_a_silent_connection_to_a_machine_that_was_without_power_breaks_when_it_is_used() -> None:
    async def story(bench: Bench) -> None:
        bench.server.crash(CrashMode.POWER_LOSS)
        bench.server.restart()
        await asyncio.sleep(3600)
        assert bench.near.events == ["made"]
        bench.write(b"hello?")
        await asyncio.sleep(1)
        assert isinstance(bench.near.error, ConnectionResetError)

    Bench().play(story)


def test_a_reset_between_both_ends_reaches_both_and_loses_what_is_under_way() -> None:
    async def story(bench: Bench) -> None:
        bench.write(b"under way")
        assert bench.network.reset_connections("client", "server") == 1
        await asyncio.sleep(1)
        for end in (bench.near, bench.far):
            assert end.events == ["made", "lost"]
            assert isinstance(end.error, ConnectionResetError)
        assert bench.network.reset_connections("client", "server") == 0
        assert bench.world.tcp.counters.reset == 2

    Bench().play(story)


def test_a_slow_reader_slows_its_writer_down_and_nothing_grows() -> None:
    async def story(bench: Bench) -> None:
        far = NotingBuffered(size=100)
        far.events.append("made")

        def took(data: bytes | memoryview) -> None:
            NotingBuffered.took(far, data)
            far.transport.pause_reading()
            bench.world.loop.call_later(0.1, far.transport.resume_reading)

        far.took = took  # type: ignore[method-assign]
        far.transport = bench.far.transport
        bench.far.transport.set_protocol(far)
        bench.write(b"x" * 20_000)
        written = 20_000
        for _ in range(40):
            await asyncio.sleep(1)
            assert len(far.received) <= bench.now * 1_000 + 100
            assert written - len(far.received) - bench.near.transport.get_write_buffer_size() <= 1_000 + 2_000
        assert len(far.received) == 20_000

    Bench(tcp=TcpConfig(send_buffer_bytes=1_000, receive_buffer_bytes=2_000)).play(story)


def test_sizes_of_buffers_can_be_asked_for() -> None:
    async def story(bench: Bench) -> None:
        socket: Socket = bench.near.transport.get_extra_info("socket")
        socket.setsockopt(socket_names.SOL_SOCKET, socket_names.SO_SNDBUF, 500)
        bench.far.transport.get_extra_info("socket").setsockopt(socket_names.SOL_SOCKET, socket_names.SO_RCVBUF, 700)
        bench.server.pause()
        bench.write(b"x" * 10_000)
        await asyncio.sleep(1)
        assert bench.near.transport.get_write_buffer_size() == 10_000 - 500 - 700

    Bench().play(story)


@pytest.mark.parametrize("name", ["segment_bytes", "send_buffer_bytes", "receive_buffer_bytes", "bandwidth"])
def test_sizes_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be > 0, got 0"):
        TcpConfig(**{name: 0})
    with pytest.raises(ValueError, match="cut_probability must be between 0 and 1"):
        TcpConfig(cut_probability=1.5)


def program(seed: int) -> str:
    """A digest of what both ends see, and when, of a connection in bad weather that is broken and made anew."""
    bench = Bench(
        seed=seed,
        tcp=TcpConfig(segment_bytes=50, cut_probability=0.5, bandwidth=100_000, receive_buffer_bytes=300),
        network=NetworkConfig(loss_probability=0.05, slow_probability=0.1),
    )
    log: list[str] = []

    async def story(bench: Bench) -> None:
        def took(data: bytes | memoryview) -> None:
            log.append(f"{bench.now:.9f} {len(data)}")

        bench.far.took = took  # type: ignore[method-assign]
        for number in range(50):
            bench.write(b"%d" % number * (number % 7) * 10)
            await asyncio.sleep(0.01)
        bench.network.reset_connections("client", "server")
        await asyncio.sleep(1)
        log.append(repr((bench.near.events, bench.far.events, bench.world.tcp.counters)))

    bench.play(story)
    return hashlib.sha256("\n".join(log).encode()).hexdigest()


def test_the_seed_alone_decides_what_becomes_of_streams() -> None:
    first = program(3)
    assert program(3) == first
    assert program(4) != first
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    code = "from tests.simbookie.world.streams.test_faults import program; print(program(3), end='')"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == first

"""The HTTP server: whole requests, whole answers, and limits for those who do not mean well."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from simbookie.admin.http_server import HttpConfig, HttpRequest, HttpResponse, HttpServer
from tests.simbookie.admin.http_client import ask, raw


async def echo(request: HttpRequest) -> HttpResponse:
    if request.path == "/raise":
        raise RuntimeError("planted")
    if request.path == "/wait":
        await asyncio.Event().wait()
    text = f"{request.method} {request.path} {sorted(request.params.items())} {request.body.decode()}"
    return HttpResponse(200, text.encode(), "text/plain")


async def streaming(request: HttpRequest) -> HttpResponse:
    assert request.headers["x"] in {"a", "a, b"}

    async def pieces() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            if request.path == "/endless":
                while True:
                    await asyncio.sleep(0.001)
                    yield b"more"
        finally:
            STREAMS_ENDED.append(request.path)

    return HttpResponse(200, b"head ", "text/plain", (("x-more", "y"),), pieces())


STREAMS_ENDED: list[str] = []


async def test_an_answer_may_come_in_pieces_and_ends_with_its_client() -> None:
    STREAMS_ENDED.clear()
    server = HttpServer(streaming, "127.0.0.1", 0)
    await server.start()
    try:
        answer = await raw(server.port, b"GET /few HTTP/1.1\r\nHost: b\r\nX: a\r\nX: b\r\n\r\n")
        assert b"x-more: y" in answer
        assert b"transfer-encoding: chunked" in answer.lower()
        assert answer.endswith(b"5\r\nhead \r\n3\r\none\r\n0\r\n\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /endless HTTP/1.1\r\nHost: b\r\nX: a\r\n\r\n")
        await reader.readuntil(b"more")
        writer.close()
        while STREAMS_ENDED != ["/few", "/endless"]:  # noqa: ASYNC110  the server has no event for it
            await asyncio.sleep(0.001)
        await connected(server, 0)
    finally:
        await server.aclose()


async def connected(server: HttpServer, count: int) -> None:
    while server.connections != count:  # noqa: ASYNC110  the server has no event for it
        await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(config: HttpConfig | None = None) -> AsyncIterator[HttpServer]:
    server = HttpServer(echo, "127.0.0.1", 0, config)
    await server.start()
    try:
        yield server
    finally:
        await server.aclose()
    assert server.connections == 0


async def test_a_request_comes_whole_and_its_answer_goes_out_whole() -> None:
    async with serving() as server:
        assert await ask(server.port, "GET", "/a?b=1&c=&b=2") == (200, "GET /a [('b', '2'), ('c', '')] ")
        assert await ask(server.port, "PUT", "/a", b"body") == (200, "PUT /a [] body")


async def test_a_connection_carries_requests_one_after_the_other() -> None:
    async with serving() as server:
        one = b"GET /%d HTTP/1.1\r\nHost: b\r\n\r\n"
        answer = await raw(server.port, one % 1 + one % 2 + b"GET /3 HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
        assert [part.split(b"\r\n\r\n")[-1] for part in answer.split(b"HTTP/1.1 200 ")[1:]] == [
            b"GET /%d [] " % number for number in (1, 2, 3)
        ]


async def test_a_request_may_come_byte_by_byte_and_a_body_in_chunks() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        request = b"POST /a HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        for byte in request + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n":
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await reader.read()).endswith(b"POST /a [] abc")
        writer.close()


async def test_a_client_that_waits_to_be_told_to_go_on_is() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"PUT /a HTTP/1.1\r\nHost: b\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"ab")
        assert (await reader.readuntil(b"PUT /a [] ab")).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_the_answer_to_head_has_no_body() -> None:
    async with serving() as server:
        status, body = await ask(server.port, "HEAD", "/a")
        assert (status, body) == (200, "")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # without a host
        (b"GET / HTTP/1.1\r\nHost: b\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: b\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\nHost: b\r\n\r\n", 400),
        (b"GET /?" + b"a&" * 101 + b" HTTP/1.1\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: b\r\nA: " + b"x" * 20_000, 431),
        (b"PUT / HTTP/1.1\r\nHost: b\r\nContent-Length: 65537\r\n\r\n", 413),
        (b"PUT / HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n" + b"x" * 65_537, 413),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
)
async def test_what_is_wrong_or_too_large_is_refused(request_bytes: bytes, status: int) -> None:
    async with serving() as server:
        answer = await raw(server.port, request_bytes, ends=False)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"connection: close" in answer.lower()
        assert await ask(server.port, "GET", "/a") == (200, "GET /a [] ")


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with serving(HttpConfig(request_timeout_s=0.05)) as server:
        answer = await raw(server.port, b"PUT / HTTP/1.1\r\nHost: b\r\nContent-Length: 9\r\n\r\n", ends=False)
        assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_connection_without_a_request_is_closed() -> None:
    async with serving(HttpConfig(idle_timeout_s=0.05)) as server:
        assert await raw(server.port, b"", ends=False) == b""


async def test_a_connection_too_many_is_told_so_and_the_others_go_on() -> None:
    async with serving(HttpConfig(connections_max=2)) as server:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        await connected(server, 2)
        assert (await raw(server.port, b"", ends=False)).startswith(b"HTTP/1.1 503 ")
        for reader, writer in held:
            writer.write(b"GET /a HTTP/1.1\r\nHost: b\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()


async def test_a_client_that_takes_no_answer_is_dropped() -> None:
    async def much(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, b"x" * (64 << 20))

    server = HttpServer(much, "127.0.0.1", 0, HttpConfig(answer_timeout_s=0.05))
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
    writer.write(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n")
    await connected(server, 1)
    await connected(server, 0)
    writer.close()
    del reader
    await server.aclose()


async def test_a_handler_that_raises_is_logged_and_answered_with_500(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        assert (await ask(server.port, "GET", "/raise"))[0] == 500
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_handler_that_takes_too_long_is_given_up() -> None:
    async with serving(HttpConfig(handler_timeout_s=0.05)) as server:
        assert (await ask(server.port, "GET", "/wait"))[0] == 503


async def test_an_end_breaks_what_is_under_way() -> None:
    async with serving() as server:
        asking = asyncio.create_task(raw(server.port, b"GET /wait HTTP/1.1\r\nHost: b\r\n\r\n", ends=False))
        await connected(server, 1)
        await server.aclose()
        answer = (await asyncio.gather(asking, return_exceptions=True))[0]
        assert answer == b"" or isinstance(answer, ConnectionResetError)


@pytest.mark.parametrize("name", list(HttpConfig.__slots__))
def test_a_limit_must_be_positive(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        HttpConfig(**{name: 0})

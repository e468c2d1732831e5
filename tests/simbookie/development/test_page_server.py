"""The page's server: who is answered, who is refused, and what is shown."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import bkclient
from simbookie.cluster import memory_cluster
from simbookie.development import page_server
from simbookie.development.control import ClusterControl
from simbookie.development.page_server import PageServer
from simbookie.development.snapshot import LEDGERS_SHOWN_MAX, METRICS, Snapshots
from tests.simbookie.admin.http_client import raw
from tests.simbookie.development.bench import FakeProcesses, controlled

TOKEN = "the-token"
TEXT = "bookie_SERVER_STATUS 1.0\nbookie_ledgers_count 3.0\nbookie_write_cache_size 7.0\n"


@asynccontextmanager
async def serving(
    host: str = "127.0.0.1", **more: Any
) -> AsyncIterator[tuple[PageServer, FakeProcesses, bkclient.BookKeeper]]:
    control, processes = controlled()
    await control.start()
    async with memory_cluster() as uri, bkclient.connect(uri) as bk:
        snapshots = Snapshots(control, bk, fetch=lambda _host, _port: TEXT)
        server = PageServer(control, snapshots, host, 0, token=TOKEN, **more)
        await server.start()
        try:
            yield server, processes, bk
        finally:
            await server.aclose()
            await snapshots.aclose()
            await control.aclose()


async def ask(server: PageServer, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str, str]:
    """Status, head and body of the answer."""
    sent = {"Host": f"127.0.0.1:{server.port}", "Connection": "close", "Content-Length": str(len(body))}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    answer = await raw(server.port, f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body, ends=False)
    head, _, rest = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), head, rest


def action(name: str, bookie: str = "bookie-0") -> bytes:
    return json.dumps({"action": name, "bookie": bookie}).encode()


async def test_the_page_has_its_token_and_forbids_what_comes_from_elsewhere() -> None:
    async with serving() as (server, _, _):
        status, head, page = await ask(server, "GET", "/")
        assert status == 200
        assert f'content="{TOKEN}"' in page
        assert "default-src 'none'" in head
        assert "frame-ancestors 'none'" in head
        assert server.url == f"http://127.0.0.1:{server.port}/"
        for path in re.findall(r'(?:src|href)="(/[^"]+)"', page):
            assert (await ask(server, "GET", path))[0] == 200
        assert not re.search(r"https?://", page)


async def test_an_action_needs_the_token() -> None:
    async with serving() as (server, processes, _):
        assert (await ask(server, "POST", "/act", action("crash")))[0] == 403
        assert (await ask(server, "POST", "/act", action("crash"), X_Token="another"))[0] == 403
        assert (await ask(server, "GET", "/act?action=crash&bookie=bookie-0", X_Token=TOKEN))[0] == 405
        assert processes.bookies[0].done == []
        status, _, body = await ask(server, "POST", "/act", action("crash"), X_Token=TOKEN)
        assert (status, json.loads(body)) == (200, {"number": 1, "action": "crash", "bookie": "bookie-0"})
        assert processes.bookies[0].done == ["kill"]
        status, _, body = await ask(server, "POST", "/act", action("crash"), X_Token=TOKEN)
        assert (status, json.loads(body)) == (409, {"error": "bookie-0 is not running: restart bookie-0"})


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": "127.0.0.1:1@evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/state"), ("GET", "/events"), ("POST", "/act")])
async def test_requests_of_other_sites_are_refused(headers: dict[str, str], method: str, path: str) -> None:
    async with serving() as (server, processes, _):
        status, _, body = await ask(server, method, path, action("crash"), X_Token=TOKEN, **headers)
        assert status == 403
        assert TOKEN not in body
        assert processes.bookies[0].is_running


async def test_the_page_is_served_under_the_names_of_this_machine() -> None:
    async with serving() as (server, _, _):
        for name in ("localhost", "[::1]"):
            assert (await ask(server, "GET", "/", Host=f"{name}:{server.port}"))[0] == 200
        own = f"http://localhost:{server.port}"
        assert (await ask(server, "GET", "/", Host=f"localhost:{server.port}", Origin=own))[0] == 200


async def test_beyond_loopback_reading_needs_the_token() -> None:
    async with serving("0.0.0.0") as (server, _, _):
        assert server.url.endswith(f"/?token={TOKEN}")
        for path in ("/", "/state", "/events"):
            assert (await ask(server, "GET", path))[0] == 403
            assert (await ask(server, "GET", f"{path}?token=wrong"))[0] == 403
        assert (await ask(server, "GET", f"/?token={TOKEN}", Host=f"10.1.2.3:{server.port}"))[0] == 200


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"action": 1}', b'{"action": "crash", "bookie": 0}', b"[" * 60_000]
)
async def test_a_body_that_is_no_action_is_refused(body: bytes) -> None:
    async with serving() as (server, _, _):
        assert (await ask(server, "POST", "/act", body, X_Token=TOKEN))[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/absent", 404), ("PUT", "/", 405), ("POST", "/state", 405)]
)
async def test_other_paths_and_methods_are_refused(method: str, path: str, status: int) -> None:
    async with serving() as (server, _, _):
        assert (await ask(server, method, path))[0] == status


async def test_a_snapshot_has_bookies_and_ledgers_with_their_lac() -> None:
    async with serving() as (server, processes, bk):
        closed = await bk.create_ledger()
        async with closed:
            await closed.append(b"x")
        async with await bk.create_ledger() as writer:
            for _ in range(3):
                await writer.append(b"x")
            processes.bookies[1].is_running = False
            state = json.loads((await ask(server, "GET", "/state"))[2])
            first, second = state["bookies"]
            assert (first["state"], second["state"], second["values"]) == ("running", "crashed", None)
            assert set(first["values"]) == set(METRICS)
            assert (first["values"]["ledgers"], first["values"]["cache_bytes"]) == (3, 7)
            newest, oldest = state["ledgers"]
            assert (newest["id"], newest["state"], newest["sizes"]) == (1, "OPEN", "3/2/2")
            assert newest["last"] in {1, 2}  # the writer told of the last one, or has not yet
            assert (oldest["state"], oldest["last"]) == ("CLOSED", 0)
            assert newest["fragments"] == [{"first": 0, "bookies": list(writer.metadata.last_fragment.ensemble)}]
            assert (state["ledger_count"], state["problem"]) == (2, "")


async def test_only_the_newest_ledgers_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LEDGERS_SHOWN_MAX == 30
    monkeypatch.setattr("simbookie.development.snapshot.LEDGERS_SHOWN_MAX", 2)
    async with serving() as (server, _, bk):
        for _ in range(4):
            async with await bk.create_ledger():
                pass
        state = json.loads((await ask(server, "GET", "/state"))[2])
        assert ([ledger["id"] for ledger in state["ledgers"]], state["ledger_count"]) == ([3, 2], 4)


@asynccontextmanager
async def events_of(server: PageServer) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"GET /events HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode())
    try:
        yield reader
    finally:
        writer.close()


async def snapshot_in(reader: asyncio.StreamReader) -> Any:
    while not (line := await reader.readline()).startswith(b"data: "):
        assert line, "the stream has ended"
    return json.loads(line.removeprefix(b"data: "))


async def test_events_are_snapshots_that_go_on_and_tell_what_was_done() -> None:
    async with serving(interval_s=0.01) as (server, _, _), events_of(server) as one, events_of(server) as another:
        assert (await snapshot_in(one))["done"] == []
        await ask(server, "POST", "/act", action("pause"), X_Token=TOKEN)
        for reader in (one, another):
            while not (shown := await snapshot_in(reader))["done"]:
                pass
            assert shown["done"] == [{"number": 1, "action": "pause", "bookie": "bookie-0", "error": ""}]
            assert shown["bookies"][0]["state"] == "paused"


async def test_a_snapshot_that_fails_is_told_and_the_next_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(interval_s=0.01) as (server, _, _):
        with monkeypatch.context() as broken:

            def fail(_control: ClusterControl, _bookie: object) -> str:
                raise RuntimeError("planted")

            broken.setattr(ClusterControl, "state", fail)
            async with events_of(server) as reader:
                assert "planted" in (await snapshot_in(reader))["problem"]
                broken.undo()
                while (await snapshot_in(reader)).get("bookies") is None:
                    pass
    assert "no snapshot" in caplog.text


async def test_a_page_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "STREAMS_MAX", 1)
    async with serving(interval_s=0.01) as (server, _, _), events_of(server) as reader:
        await snapshot_in(reader)
        assert (await ask(server, "GET", "/events"))[0] == 503

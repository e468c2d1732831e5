"""The page of a development cluster: what it shows comes as server-sent events, what it does goes by POST.

A page that can kill processes must not be used by pages of strangers in the same browser. Therefore every request has to name a
host that the page is served under, which ends attacks by names that resolve to this machine; requests that a browser says come
from another site are refused; and an action needs a token, which is in the page and which other sites cannot read. Beyond the
loopback interface, where a host may have any name, reading needs the token as well. Answers forbid the browser to load anything
from elsewhere, or to show the page in a frame.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

from simbookie.admin.http_server import HttpConfig, HttpRequest, HttpResponse, HttpServer
from simbookie.development.control import ACTIONS, ClusterControl, ControlError
from simbookie.development.snapshot import Snapshots

__all__ = ["STREAMS_MAX", "PageServer"]

_log: Final = logging.getLogger(__name__)
#: Pages that are open at a time.
STREAMS_MAX: Final = 16
_INTERVAL_S: Final = 1.0
_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_FILES: Final = {
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_HEADERS: Final = (
    (
        "content-security-policy",
        (
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
)


class PageServer:
    """Serves the page of ``control`` on ``host:port``. ``token`` is a secret that is new for every run.

    Where ``host`` is not this machine's loopback interface, reading needs the token as well: ``/?token=...``.
    """

    def __init__(
        self,
        control: ClusterControl,
        snapshots: Snapshots,
        host: str,
        port: int,
        *,
        token: str,
        interval_s: float = _INTERVAL_S,
    ) -> None:
        self._control = control
        self._snapshots = snapshots
        self._token = token
        self._is_local = host in {"127.0.0.1", "localhost", "::1"}
        self._interval_s = interval_s
        self._server = HttpServer(self._answer, host, port, HttpConfig(connections_max=64, handler_timeout_s=90.0))
        self._streams = 0
        self._latest: bytes = b""
        self._fresh = asyncio.Condition()
        self._taker: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    @property
    def url(self) -> str:
        """What to open in a browser."""
        return f"http://{self._server.host}:{self.port}/" + ("" if self._is_local else f"?token={self._token}")

    async def start(self) -> None:
        """Listen; ``OSError`` if the address is taken."""
        await self._server.start()

    async def aclose(self) -> None:
        """Stop listening, and break every connection. Idempotent."""
        await self._server.aclose()
        taker, self._taker = self._taker, None
        if taker is not None:
            taker.cancel()
            await asyncio.gather(taker, return_exceptions=True)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        if request.path == "/act":
            return await self._act(request)
        if request.method not in {"GET", "HEAD"}:
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, "only GET here; actions are POSTed to /act")
        if request.path == "/":
            text = _file("page.html").replace("TOKEN", self._token)
            return HttpResponse(HTTPStatus.OK, text.encode(), "text/html; charset=utf-8", _HEADERS)
        if request.path in _FILES:
            name, kind = _FILES[request.path]
            return HttpResponse(HTTPStatus.OK, _file(name).encode(), kind, _HEADERS)
        if request.path == "/state":
            return _json(HTTPStatus.OK, await self._snapshots.take())
        if request.path == "/events":
            return self._events()
        return _said(HTTPStatus.NOT_FOUND, "there are: /, /state, /events, and /act for POST")

    def _refusal(self, request: HttpRequest) -> HttpResponse | None:
        """Why the request is none of the page's, if it is none."""
        host = request.headers.get("host", "")
        name, port = host, "80"
        if ":" in host.rpartition("]")[2]:
            name, _, port = host.rpartition(":")
        if (self._is_local and name not in _LOOPBACK_NAMES) or port != str(self.port):
            return _said(HTTPStatus.FORBIDDEN, f"this page is not served as {host!r}")
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return _said(HTTPStatus.FORBIDDEN, "requests of other sites are refused")
        if request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
            return _said(HTTPStatus.FORBIDDEN, "requests of other sites are refused")
        if not self._is_local and request.path not in _FILES:
            given = request.params.get("token") or request.headers.get("x-token", "")
            if not self._is_token(given):
                return _said(HTTPStatus.FORBIDDEN, "open the address that bk-sim printed, with its token")
        return None

    async def _act(self, request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, "actions are POSTed")
        if not self._is_token(request.headers.get("x-token", "")):
            return _said(HTTPStatus.FORBIDDEN, "the token is not this run's: load the page again")
        try:
            wanted = json.loads(request.body)
            action, bookie = wanted["action"], wanted.get("bookie", "")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            action = bookie = None
        if not isinstance(action, str) or not isinstance(bookie, str):
            return _said(HTTPStatus.BAD_REQUEST, f'must be {{"action": one of {", ".join(ACTIONS)}, "bookie": ID}}')
        try:
            done = await self._control.act(action, bookie)
        except ControlError as error:
            return _json(HTTPStatus.CONFLICT, {"error": str(error)})
        return _json(HTTPStatus.OK, {"number": done.number, "action": done.action, "bookie": done.bookie})

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _events(self) -> HttpResponse:
        if self._streams >= STREAMS_MAX:
            return _said(HTTPStatus.SERVICE_UNAVAILABLE, f"the page is open {STREAMS_MAX} times already")
        return HttpResponse(HTTPStatus.OK, b"retry: 1000\n\n", "text/event-stream", _HEADERS, self._stream())

    async def _stream(self) -> AsyncIterator[bytes]:
        """Snapshots for one page; they are taken once for all pages, and only while there are any."""
        self._streams += 1
        try:
            if self._taker is None or self._taker.done():
                self._taker = asyncio.create_task(self._take())
            while True:
                async with self._fresh:
                    await self._fresh.wait()
                yield b"data: " + self._latest + b"\n\n"
        finally:
            self._streams -= 1

    async def _take(self) -> None:
        while self._streams:
            try:
                self._latest = json.dumps(await self._snapshots.take()).encode()
            except Exception as error:  # noqa: BLE001  the page says so, and the next snapshot is another chance
                _log.exception("no snapshot of the cluster could be taken")
                self._latest = json.dumps({"problem": f"no snapshot could be taken: {error}"}).encode()
            async with self._fresh:
                self._fresh.notify_all()
            await asyncio.sleep(self._interval_s)


def _file(name: str) -> str:
    return files("simbookie.development").joinpath(name).read_text(encoding="utf-8")


def _said(status: HTTPStatus, sentence: str) -> HttpResponse:
    return HttpResponse(status, f"{sentence}\n".encode(), "text/plain; charset=utf-8", _HEADERS)


def _json(status: HTTPStatus, value: Any) -> HttpResponse:
    return HttpResponse(status, json.dumps(value).encode(), "application/json", _HEADERS)

"""Requests to an HTTP server of this process, as bytes, so that they can be wrong."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any


async def raw(port: int, data: bytes, *, host: str = "127.0.0.1", ends: bool = True) -> bytes:
    """Everything the server says to ``data`` until it closes; ``ends`` closes our half behind it."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        with suppress(ConnectionError):
            writer.write(data)
            if ends:
                writer.write_eof()
            await writer.drain()
        return await reader.read()
    finally:
        writer.close()


async def ask(port: int, method: str, path: str, body: bytes | None = None, host: str = "127.0.0.1") -> tuple[int, str]:
    """Status and body of the answer to one request."""
    sized = f"Content-Length: {len(body)}\r\n" if body is not None else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: bookie\r\nConnection: close\r\n{sized}\r\n"
    answer = await raw(port, head.encode() + (body or b""), host=host, ends=False)
    status_line, _, rest = answer.partition(b"\r\n")
    return int(status_line.split()[1]), rest.partition(b"\r\n\r\n")[2].decode()


async def ask_json(port: int, method: str, path: str, body: Any = None) -> Any:
    """What the answer's body says, which must come with 200."""
    status, text = await ask(port, method, path, None if body is None else json.dumps(body).encode())
    assert status == 200, text
    return json.loads(text)

"""Ports of this machine for servers that tests start."""

from __future__ import annotations

import socket

_HOST = "127.0.0.1"


def free_port() -> int:
    """A port of loopback that nobody listens on at this moment."""
    with socket.create_server((_HOST, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def held(port: int) -> socket.socket | None:
    """A listener on ``port``, so that nobody else gets it until it is closed; ``None`` if another program has it."""
    try:
        return socket.create_server((_HOST, port))
    except OSError:
        return None

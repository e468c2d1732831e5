"""Ports of this machine for servers that tests start."""

from __future__ import annotations

import socket
from random import SystemRandom
from typing import Final

_HOST: Final = "127.0.0.1"

#: Below those that the system chooses itself, for servers and for the near ends of connections.
_PORTS: Final = range(20_000, 32_768)


def free_port() -> int:
    """A port that no socket of this machine has, of whatever address.

    For a server that binds it some seconds later, and on all addresses: Apache BookKeeper's do. To them a port is taken if a
    connection from another address of loopback has it, or had it a minute ago; and the system may choose any of its own for
    others meanwhile.
    """
    for port in SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:  # which does not ask to use again what others have just left
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port of {_PORTS} is free")


def held(port: int) -> socket.socket | None:
    """A listener on ``port``, so that nobody else gets it until it is closed; ``None`` if another program has it."""
    try:
        return socket.create_server((_HOST, port))
    except OSError:
        return None

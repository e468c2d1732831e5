"""Ports that tests give to servers are free on all addresses, and stay so."""

from __future__ import annotations

import socket

import pytest

from tests import ports
from tests.ports import free_port


def test_a_port_is_none_that_the_system_gives_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        assert free_port() < given.getsockname()[1]


def test_a_port_is_free_on_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port()
    with socket.create_server(("127.0.0.2", 0)) as taken:
        monkeypatch.setattr(ports, "_PORTS", [taken.getsockname()[1]])
        with pytest.raises(OSError, match="no port"):
            free_port()
        monkeypatch.setattr(ports, "_PORTS", [taken.getsockname()[1], free])
        assert free_port() == free


def test_a_port_is_not_one_whose_connection_was_closed_a_moment_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname(), source_address=("127.0.0.2", 0))
        port = near.getsockname()[1]
        far, _ = server.accept()
        near.close()
        assert far.recv(1) == b""
        far.close()
        monkeypatch.setattr(ports, "_PORTS", [port])
        with pytest.raises(OSError, match="no port"):
            free_port()

"""The configuration of a transport is the part of the client's that it needs, declared once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bkclient import ClientConfig, LimitSettings
from bkclient.config.fields import setting_of
from bkclient.config.group import groups_of
from bkclient.errors import ArgumentError
from bkclient.transport.tcp import TcpTransportConfig
from bkclient.wire.messages import (
    AddRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    LongPoll,
    ReadRequest,
    Request,
    WriteLacRequest,
)

RENAMED = {
    "add_timeout_s": "timeouts.add_s",
    "read_timeout_s": "timeouts.read_s",
    "connect_timeout_s": "timeouts.connect_s",
    "bookie_info_timeout_s": "timeouts.bookie_info_s",
    "max_frame_size_bytes": "limits.max_frame_size_bytes",
}
OWN = ("max_outstanding_requests", "max_outstanding_bytes", "lanes_max", "lane_given_up_max", "lane_idle_s")
SHARED = [field.name for field in dataclasses.fields(TcpTransportConfig) if field.name not in OWN]
OTHER: dict[type, Any] = {int: 600_000, float: 7.5, bool: False}


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_setting_has_one_declaration_and_arrives(name: str) -> None:
    group, _, leaf = RENAMED.get(name, f"connections.{name}").partition(".")
    ours = {field.name: field for field in dataclasses.fields(TcpTransportConfig)}[name]
    theirs = {field.name: field for field in dataclasses.fields(groups_of(ClientConfig)[group])}[leaf]
    assert setting_of(ours) is setting_of(theirs)
    assert (ours.default, ours.type) == (theirs.default, theirs.type)

    setting = setting_of(theirs)
    other = 2 if setting.choices else OTHER[setting.kind]
    if setting.high is not None and not isinstance(other, bool):
        other = min(other, int(setting.high))
    other = 1024 if name == "write_buffer_low_water_bytes" else other
    config = ClientConfig.of({group: {leaf: other}})
    assert getattr(getattr(config, group), leaf) != theirs.default
    assert getattr(TcpTransportConfig.of_client(config), name) == other


def test_a_transport_of_a_default_client_is_a_default_transport_but_for_its_bounds() -> None:
    made = TcpTransportConfig.of_client(ClientConfig())
    defaults = TcpTransportConfig()
    assert dataclasses.replace(made, max_outstanding_requests=20_000, max_outstanding_bytes=128 << 20) == defaults
    assert made.max_outstanding_requests >= defaults.max_outstanding_requests


@pytest.mark.parametrize(
    "config",
    [
        ClientConfig(),
        ClientConfig(limits=LimitSettings(max_in_flight_entries=100_000, max_in_flight_bytes=1 << 30)),
        ClientConfig(limits=LimitSettings(max_client_in_flight_entries=10**6, max_client_in_flight_bytes=1 << 34)),
    ],
)
def test_a_connection_takes_more_than_all_writers_may_have_in_flight(config: ClientConfig) -> None:
    made = TcpTransportConfig.of_client(config)
    assert made.max_outstanding_requests > max(
        config.limits.max_in_flight_entries, config.limits.max_client_in_flight_entries
    )
    assert made.max_outstanding_bytes > max(config.limits.max_in_flight_bytes, config.limits.max_client_in_flight_bytes)


def test_a_bookie_may_owe_ten_windows_of_a_writer_two_of_the_client_and_no_less_than_by_default() -> None:
    def made(**windows: int) -> tuple[int, int]:
        small = {"max_in_flight_entries": 1, "max_client_in_flight_entries": 1}
        small |= {"max_in_flight_bytes": 1 << 20, "max_client_in_flight_bytes": 1 << 20}
        config = TcpTransportConfig.of_client(ClientConfig.of({"limits": small | windows}))
        return config.max_outstanding_requests, config.max_outstanding_bytes

    usual = (20_000, 128 << 20)
    assert made() == usual
    assert made(max_in_flight_entries=50_000) == (500_000, usual[1])
    assert made(max_client_in_flight_entries=50_000) == (100_000, usual[1])
    assert made(max_in_flight_bytes=1 << 30) == (usual[0], 2 << 30)
    assert made(max_client_in_flight_bytes=1 << 30) == (usual[0], 2 << 30)


@pytest.mark.parametrize(
    ("request_", "timeout_s"),
    [
        (AddRequest(1, 0, bytes(20), b"", b""), 1.0),
        (BookieInfoRequest(3), 3.0),
        (ReadRequest(1, 0), 2.0),
        (ReadRequest(1, 0, long_poll=LongPoll(-1, 500)), 2.5),
        (WriteLacRequest(1, 0, bytes(20), b""), 2.0),
        (ForceLedgerRequest(1), 2.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_request_has_the_timeout_of_its_kind(request_: Request, timeout_s: float) -> None:
    config = TcpTransportConfig(add_timeout_s=1.0, read_timeout_s=2.0, bookie_info_timeout_s=3.0)
    assert config.timeout_s(request_) == timeout_s
    assert config.scan_interval_s == 0.05


def test_what_a_bookie_may_owe_can_be_bounded() -> None:
    config = ClientConfig(limits=LimitSettings(max_client_in_flight_bytes=64 << 20, max_unanswered_bytes=100 << 20))
    assert TcpTransportConfig.of_client(config).max_outstanding_bytes == 100 << 20
    assert TcpTransportConfig.of_client(ClientConfig()).max_outstanding_bytes == 512 << 20


@pytest.mark.parametrize("window", ["max_in_flight_bytes", "max_client_in_flight_bytes"])
def test_a_bookie_may_owe_what_the_windows_hold(window: str) -> None:
    windows = {"max_in_flight_bytes": 100, "max_client_in_flight_bytes": 100, "max_unanswered_bytes": 100}
    assert LimitSettings(**windows).max_unanswered_bytes == 100
    with pytest.raises(ArgumentError, match=f"limits.{window} must be <= limits.max_unanswered_bytes, got 101 and 100"):
        LimitSettings(**windows | {window: 101})

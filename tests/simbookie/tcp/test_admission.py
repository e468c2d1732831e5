"""How many connections there may be, and what counts as one source."""

from __future__ import annotations

import resource

import pytest

from simbookie.serving import raise_descriptor_limit
from simbookie.tcp.admission import Admission, connections_possible, source_of


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("somewhere", "somewhere"),
    ],
)
def test_a_source_is_an_address_or_a_network_of_64_bits(host: str, source: str) -> None:
    assert source_of(host) == source


def test_a_source_can_take_half_of_all_connections_and_no_more() -> None:
    admission = Admission(10, None)
    assert [admission.enter("a") for _ in range(5)] == [None] * 5
    assert admission.enter("a") == "there are 5 connections from a already"
    assert [admission.enter("b") for _ in range(5)] == [None] * 5
    assert admission.enter("c") == "there are 10 connections already"
    admission.leave("a")
    assert admission.enter("c") is None
    for source in "aaaabbbbbc":
        admission.leave(source)
    assert (admission.connections, admission._of_source) == (0, {})


def test_the_share_of_a_source_can_be_set() -> None:
    admission = Admission(10, 1)
    assert admission.enter("a") is None
    assert admission.enter("a") == "there are 1 connections from a already"


@pytest.mark.parametrize(("limit", "expected"), [(1024, 960), (100, 50), (1, 1), (resource.RLIM_INFINITY, 1 << 30)])
def test_descriptors_are_kept_for_other_things(monkeypatch: pytest.MonkeyPatch, limit: int, expected: int) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert connections_possible() == expected


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "expected"),
    [
        (1024, 4096, 10_000, 4096),
        (1024, 20_000, 10_000, 10_064),
        (1024, resource.RLIM_INFINITY, 10_000, 10_064),
        (1024, 4096, 100, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 100, None),
    ],
)
def test_a_bookie_process_may_open_files_for_its_connections_where_the_system_lets_it(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, connections: int, expected: int | None
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr("resource.setrlimit", lambda _, new: limits.append(new))
    raise_descriptor_limit(connections)
    assert limits == ([] if expected is None else [(expected, hard)])

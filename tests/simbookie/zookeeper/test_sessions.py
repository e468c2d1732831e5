"""Sessions by the clock that they are told."""

from __future__ import annotations

import pytest

from simbookie.zookeeper.sessions import Session, SessionTable

PASSWORDS = b"abcdefgh"


def new_table(*, sessions_max: int = 3) -> SessionTable:
    passwords = iter(PASSWORDS)
    return SessionTable(
        first_id=7,
        random_bytes=lambda size: bytes([next(passwords)]) * size,
        sessions_max=sessions_max,
        timeout_min_s=1.0,
        timeout_max_s=10.0,
    )


def opened(table: SessionTable, timeout_ms: int = 4000, now: float = 0.0) -> Session:
    session = table.open(timeout_ms, now)
    assert session is not None
    return session


@pytest.mark.parametrize(("wish_ms", "timeout_ms"), [(4000, 4000), (0, 1000), (-5, 1000), (10**9, 10_000)])
def test_timeouts_are_what_clients_wish_within_bounds(wish_ms: int, timeout_ms: int) -> None:
    assert opened(new_table(), wish_ms).timeout_ms == timeout_ms


def test_a_session_expires_when_nothing_was_heard_for_its_timeout() -> None:
    table = new_table()
    silent, lively = opened(table, 4000, now=100.0), opened(table, 4000, now=100.0)
    lively.touch(103.0)
    assert table.next_deadline() == 104.0
    assert table.expired(103.9) == []
    assert table.expired(104.0) == [silent]
    assert table.close(silent)
    assert not table.close(silent)
    assert table.next_deadline() == 107.0
    assert table.reopen(silent.session_id, silent.password, 4000, now=104.0) is None


def test_a_session_is_taken_over_with_its_password_only() -> None:
    table = new_table()
    session = opened(table)
    for password in (b"", b"b" * 16, session.password[:-1], session.password + b"a"):
        assert table.reopen(session.session_id, password, 9000, now=3.0) is None
    assert session.deadline == 4.0
    assert table.reopen(session.session_id, session.password, 9000, now=3.0) is session
    assert (session.timeout_ms, session.deadline) == (9000, 12.0)


def test_there_are_so_many_sessions_and_no_more() -> None:
    table = new_table(sessions_max=2)
    first, second = opened(table), opened(table)
    assert table.open(4000, 0.0) is None
    table.close(first)
    third = opened(table)
    assert [session.session_id for session in table] == [second.session_id, third.session_id]
    assert len({first.session_id, second.session_id, third.session_id}) == 3
    assert table.next_deadline() is not None
    assert len(table) == 2

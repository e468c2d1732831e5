"""The log: what each event says, which record attributes it has, and that every event declared happens somewhere."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import bkclient
from bkclient.errors import BookKeeperError, Code, LedgerFenced
from bkclient.observability import log
from bkclient.observability.log import EVENTS, LogEvent
from tests.bkclient.fakes import fake_cluster, writer_of
from tests.settling import settled

PACKAGE = Path(bkclient.__file__).parent


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="bkclient")


def events(caplog: pytest.LogCaptureFixture, area: str) -> list[str]:
    return [record.event for record in caplog.records if record.name == f"bkclient.{area}" and hasattr(record, "event")]


def test_a_record_carries_what_it_is_about_for_formatters(caplog: pytest.LogCaptureFixture) -> None:
    log.CONNECTION_LOST(bookie_id="b", outstanding=3, reason="it broke")
    (record,) = caplog.records
    assert record.name == "bkclient.transport"
    assert record.getMessage() == "lost the connection to bookie b with 3 requests under way: it broke"
    formatter = logging.Formatter("%(event)s %(ledger_id)s %(entry_id)s %(bookie_id)s %(code)s %(details)s")
    assert formatter.format(record) == "connection_lost None None b None {'outstanding': 3, 'reason': 'it broke'}"
    assert record.filename == "test_log.py"  # not the helper's


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: f"{event.logger_name}.{event.name}")
def test_every_event_happens_somewhere_in_the_package(event: LogEvent) -> None:
    (name,) = (name for name, value in vars(log).items() if value is event)
    uses = [path for path in PACKAGE.rglob("*.py") if re.search(rf"\blog\.{name}\b", path.read_text())]
    assert uses


def test_only_shells_log() -> None:
    machines = (PACKAGE / "protocol").rglob("*.py")
    assert [path.name for path in machines if re.search(r"\blog\b", path.read_text().replace("a log", ""))] == []


async def test_a_changed_ensemble_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        first = writer.metadata.last_fragment.ensemble
        where.transport.bookies[first[0]].code = Code.BOOKIE_NOT_AVAILABLE
        await writer.append(b"y")
        await writer.append(b"z")  # a failure that costs no quorum is acted upon by the next append
        await settled()
        assert events(caplog, "writer") == ["ensemble_changed"]
        record = caplog.records[-1]
        assert (record.ledger_id, record.entry_id) == (writer.ledger_id, writer.metadata.last_fragment.first_entry_id)  # type: ignore[attr-defined]
        assert record.details["ensemble"] == ", ".join(writer.metadata.last_fragment.ensemble)  # type: ignore[attr-defined]
        await writer.close()
    assert events(caplog, "writer") == ["ensemble_changed", "closed"]


async def test_a_fenced_writer_is_logged_once_however_much_it_had_in_flight(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        for bookie in where.transport.bookies.values():
            bookie.code = Code.LEDGER_FENCED
        futures = [writer.append_nowait(b"x") for _ in range(5)]
        with pytest.raises(LedgerFenced):
            await futures[0]
        await settled()
    assert events(caplog, "writer").count("fenced") == 1
    record = next(record for record in caplog.records if record.name == "bkclient.writer")
    assert (record.ledger_id, record.entry_id, record.code) == (writer.ledger_id, 0, Code.LEDGER_FENCED)  # type: ignore[attr-defined]


async def test_a_writer_that_ends_for_another_reason_says_which(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.bookies["a"].code = Code.BOOKIE_NOT_AVAILABLE
        with pytest.raises(BookKeeperError):
            await writer.append(b"x")
        await settled()
    assert "failed" in events(caplog, "writer")
    assert "no writable bookie is left" in caplog.text


async def test_closing_the_client_is_no_failure_of_its_writers(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        future = writer.append_nowait(b"x")
    assert isinstance(future.exception(), BookKeeperError)
    assert events(caplog, "writer") == []


async def test_a_recovery_says_what_it_found_and_how_long_it_took(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        for _ in range(3):
            await writer.append(b"x")
        await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
    assert events(caplog, "recovery") == ["recovery_started", "recovery_finished"]
    record = caplog.records[-1]
    assert (record.ledger_id, record.entry_id) == (writer.ledger_id, 2)  # type: ignore[attr-defined]
    details = record.details  # type: ignore[attr-defined]
    assert details["found"] == details["written"] >= 1
    assert details["seconds"] >= 0


async def test_a_recovery_that_fails_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        for bookie in where.transport.bookies.values():
            bookie.code = Code.TIMEOUT
        with pytest.raises(BookKeeperError) as caught:
            await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
    assert events(caplog, "recovery") == ["recovery_started", "recovery_failed"]
    assert caplog.records[-1].code == caught.value.code  # type: ignore[attr-defined]


async def test_the_connection_to_the_metadata_service_is_logged_as_it_comes_and_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("kazoo")
    from bkclient.metadata.zookeeper.session import ZooKeeperSession  # noqa: PLC0415 - an optional driver

    session = ZooKeeperSession("127.0.0.1:1", session_timeout_s=1.0, operation_timeout_s=1.0, name="zk://here/ledgers")
    for state in ("CONNECTED", "SUSPENDED", "SUSPENDED", "CONNECTED", "SUSPENDED", "LOST", "CONNECTED"):
        session._change_state(state)
    await session.aclose()
    session._change_state("LOST")  # of our own making
    assert events(caplog, "metadata") == [
        "connected",
        "disconnected",
        "connected",
        "disconnected",
        "session_lost",
        "connected",
    ]
    assert "zk://here/ledgers" in caplog.records[0].getMessage()


def test_the_librarys_loggers_are_silent_until_somebody_configures_them() -> None:
    handlers = logging.getLogger("bkclient").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)


def test_nothing_that_happens_often_is_above_debug() -> None:
    assert {event.level for event in EVENTS.values()} <= {logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR}
    # What is an error for a log is a ledger that lost entries; everything else is for who called.
    assert {event.logger_name for event in EVENTS.values() if event.level == logging.ERROR} == {
        "bkclient.reader",
        "bkclient.writer",
    }

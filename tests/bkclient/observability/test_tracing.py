"""Spans: which operations have them, what they say, and whose children they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from bkclient import BookKeeper
from bkclient.errors import Code, LedgerFenced, NoSuchLedger, WriteFailed
from bkclient.observability.tracing import SPAN_NAMES, OpenTelemetryTracer
from tests.bkclient.fakes import FakeCluster, fake_cluster
from tests.settling import settled


class Traces:
    """A provider of the test's own, and what it was told."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def one(self, name: str) -> ReadableSpan:
        (span,) = (span for span in self.spans if span.name == name)
        return span


def attributes(span: ReadableSpan) -> dict[str, object]:
    return {name.removeprefix("bookkeeper."): value for name, value in (span.attributes or {}).items()}


def traced(where: FakeCluster, traces: Traces, *, appends: bool = False) -> BookKeeper:
    """A second client of the cluster, with a tracer."""
    bk = where.another_client()
    bk._tracer = OpenTelemetryTracer(traces.provider, appends=appends)
    return bk


async def test_a_ledgers_life_is_a_span_for_each_operation() -> None:
    traces = Traces()
    async with fake_cluster() as where, traced(where, traces) as bk:
        writer = await bk.create_ledger(password=b"secret")
        await writer.append(b"x")
        await writer.close()
        await bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        await bk.delete_ledger(writer.ledger_id)
    assert traces.names == ["bookkeeper.create", "bookkeeper.close", "bookkeeper.open", "bookkeeper.delete"]
    for span in traces.spans:
        assert attributes(span) == {"ledger_id": writer.ledger_id, "code": 0}
        assert span.kind is SpanKind.CLIENT
        assert span.status.status_code is StatusCode.UNSET


async def test_a_recovery_is_a_child_of_the_opening_and_that_one_of_the_applications_span() -> None:
    traces = Traces()
    async with fake_cluster() as where, traced(where, traces) as bk:
        writer = await where.bk.create_ledger(password=b"secret")
        await writer.append(b"x")
        tracer = traces.provider.get_tracer("application")
        with tracer.start_as_current_span("request"):
            await bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        request, opened = traces.one("request"), traces.one("bookkeeper.open")
        recovered = traces.one("bookkeeper.recover")
    assert opened.parent is not None
    assert recovered.parent is not None
    assert opened.parent.span_id == request.context.span_id
    assert recovered.parent.span_id == opened.context.span_id
    assert attributes(recovered) == {"ledger_id": writer.ledger_id, "code": 0}


async def test_a_failure_has_its_code_and_its_exception() -> None:
    traces = Traces()
    async with fake_cluster() as where, traced(where, traces) as bk:
        with pytest.raises(NoSuchLedger):
            await bk.open_ledger(999, recover=True)
    span = traces.one("bookkeeper.open")
    assert attributes(span) == {"ledger_id": 999, "code": int(Code.NO_SUCH_LEDGER)}
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


async def test_an_operation_that_was_cancelled_ends_without_a_code() -> None:
    traces = Traces()
    async with fake_cluster() as where, traced(where, traces) as bk:
        tracer = bk._tracer
        assert tracer is not None
        with pytest.raises(asyncio.CancelledError), tracer.operation("LEDGER_OPEN", 7):
            raise asyncio.CancelledError
    assert attributes(traces.one("bookkeeper.open")) == {"ledger_id": 7, "cancelled": True}
    assert traces.one("bookkeeper.open").status.status_code is StatusCode.UNSET


async def test_appends_have_spans_only_if_they_are_asked_for() -> None:
    for appends in (False, True):
        traces = Traces()
        async with fake_cluster() as where, traced(where, traces, appends=appends) as bk:
            writer = await bk.create_ledger(password=b"secret")
            await asyncio.gather(*[writer.append_nowait(b"x") for _ in range(3)])
        assert traces.names.count("bookkeeper.append") == (3 if appends else 0)


async def test_an_append_names_its_entry_and_ends_with_its_outcome() -> None:
    traces = Traces()
    async with fake_cluster() as where, traced(where, traces, appends=True) as bk:
        writer = await bk.create_ledger(password=b"secret")
        await writer.append(b"x")
        for bookie in where.transport.bookies.values():
            bookie.code = Code.LEDGER_FENCED
        with pytest.raises(LedgerFenced):
            await writer.append(b"y")
        await settled()
    good, bad = (span for span in traces.spans if span.name == "bookkeeper.append")
    assert attributes(good) == {"ledger_id": writer.ledger_id, "entry_id": 0, "code": 0}
    assert attributes(bad).pop("bookie_id") in writer.metadata.last_fragment.ensemble
    assert (
        attributes(bad).items()
        >= {"ledger_id": writer.ledger_id, "entry_id": 1, "code": int(Code.LEDGER_FENCED)}.items()
    )
    assert bad.status.status_code is StatusCode.ERROR


async def test_entries_of_given_ids_have_spans_too() -> None:
    traces = Traces()
    async with fake_cluster() as where, traced(where, traces, appends=True) as bk:
        writer = await bk.create_advanced_ledger(password=b"secret")
        await asyncio.gather(writer.append_nowait(1, b"one"), writer.append_nowait(0, b"zero"))
    entries = sorted(str(attributes(s)["entry_id"]) for s in traces.spans if s.name == "bookkeeper.append")
    assert entries == ["0", "1"]


def test_every_span_has_the_prefix() -> None:
    assert all(name.startswith("bookkeeper.") for name in SPAN_NAMES.values())


async def test_the_span_of_an_append_that_ends_its_writer_names_the_entry_too() -> None:
    traces = Traces()
    async with fake_cluster() as where, traced(where, traces, appends=True) as bk:
        writer = await bk.create_ledger(
            ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, password=b"secret", deferred_sync=True
        )
        where.transport.bookies[writer.metadata.last_fragment.ensemble[2]].code = Code.TIMEOUT
        await writer.append(b"x")
        await settled()
        with pytest.raises(WriteFailed):  # the ensemble of such a ledger must not change, and one of it failed late
            await writer.append(b"y")
    spans = [attributes(span)["entry_id"] for span in traces.spans if span.name == "bookkeeper.append"]
    assert spans == [0, 1]

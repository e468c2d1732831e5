"""Spans for OpenTelemetry.

::

    from bkclient.observability.tracing import OpenTelemetryTracer

    async with bkclient.connect(uri, tracer=OpenTelemetryTracer()) as bk:
        ...

Operations are spans of kind *client*, children of whatever span is current where the application calls, and parents of what
they call in turn: the recovery of a ledger is a child of its opening. Names and attributes:

==================================  ==========================================================
``bookkeeper.create``               creating a ledger
``bookkeeper.open``                 opening one, its recovery included
``bookkeeper.recover``              recovering one
``bookkeeper.delete``               deleting one
``bookkeeper.close``                closing one by its writer
``bookkeeper.append``               one append, with ``appends=True`` only
``bookkeeper.ledger_id``            attribute: the ledger
``bookkeeper.entry_id``             attribute: the entry, of appends and of errors about one
``bookkeeper.bookie_id``            attribute: the bookie that an error is about
``bookkeeper.code``                 attribute: the outcome, 0 for success
==================================  ==========================================================

An operation that fails has the status *error* and the exception as an event; one that was cancelled has no code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

try:
    from opentelemetry import trace
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise ModuleNotFoundError(
        "bkclient.observability.tracing needs opentelemetry-api: install bkclient[opentelemetry]", name=error.name
    ) from error

from bkclient.errors import BookKeeperError, Code, code_of
from bkclient.observability import stats
from bkclient.observability.tracer import Span

__all__ = ["SPAN_NAMES", "OpenTelemetryTracer"]

#: Names of spans by those of operations.
SPAN_NAMES: Final = {
    stats.CREATE: "bookkeeper.create",
    stats.OPEN: "bookkeeper.open",
    stats.RECOVER: "bookkeeper.recover",
    stats.DELETE: "bookkeeper.delete",
    stats.CLOSE: "bookkeeper.close",
    stats.ADD: "bookkeeper.append",
}


class OpenTelemetryTracer:
    """A :class:`~bkclient.observability.tracer.Tracer`. Spans go to ``provider``, the process's own unless one is given.

    With ``appends`` every append is a span: some 40 microseconds each, much more than the append itself takes. For searching a
    defect, not for production.
    """

    def __init__(self, provider: trace.TracerProvider | None = None, *, appends: bool = False) -> None:
        self._tracer = trace.get_tracer("bkclient", tracer_provider=provider)
        self._appends = appends

    @property
    def wants_appends(self) -> bool:
        """See :class:`~bkclient.observability.tracer.Tracer`."""
        return self._appends

    @contextmanager
    def operation(self, name: str, ledger_id: int | None = None) -> Iterator[Span]:
        """See :class:`~bkclient.observability.tracer.Tracer`."""
        with self._tracer.start_as_current_span(
            SPAN_NAMES.get(name, name),
            kind=trace.SpanKind.CLIENT,
            record_exception=False,
            set_status_on_exception=False,
        ) as inner:
            span = _Span(inner)
            if ledger_id is not None:
                span.set_ledger(ledger_id)
            try:
                yield span
            except BaseException as error:
                span.end_with(error)
                raise
            span.end_with(None)

    def append(self, ledger_id: int, entry_id: int) -> Callable[[BaseException | None], None]:
        """See :class:`~bkclient.observability.tracer.Tracer`."""
        inner = self._tracer.start_span(
            SPAN_NAMES[stats.ADD],
            kind=trace.SpanKind.CLIENT,
            attributes={"bookkeeper.ledger_id": ledger_id, "bookkeeper.entry_id": entry_id},
        )

        def end(error: BaseException | None) -> None:
            _Span(inner).end_with(error)
            inner.end()

        return end


class _Span:
    """One of OpenTelemetry's spans, seen by the client."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def set_ledger(self, ledger_id: int) -> None:
        """See :class:`~bkclient.observability.tracer.Span`."""
        self._span.set_attribute("bookkeeper.ledger_id", ledger_id)

    def end_with(self, error: BaseException | None) -> None:
        """Set what the outcome says."""
        span = self._span
        if isinstance(error, asyncio.CancelledError):
            span.set_attribute("bookkeeper.cancelled", True)  # noqa: FBT003 - an attribute's value
            return
        span.set_attribute("bookkeeper.code", int(code_of(error)) if error is not None else int(Code.OK))
        if error is None:
            return
        if isinstance(error, BookKeeperError):
            about = {"ledger_id": error.ledger_id, "entry_id": error.entry_id, "bookie_id": error.bookie_id}
            span.set_attributes({f"bookkeeper.{name}": value for name, value in about.items() if value is not None})
        span.record_exception(error)
        span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))

"""Holding what applications plug in away from the protocol: a plug-in that raises is logged, and nothing else happens.

Statistics, tracers, observers and features are asked in the middle of things: between a bookie's answer and what follows from it.
They promise not to raise. If one does all the same, an entry must not be lost for it, a window not lose a place and an update
not its end. So each is wrapped once, when a client is made, and every method that fails is logged, with its
traceback, the first time it does; after that it may go on failing at no more cost than the call.

What stands in for a failed answer: a feature is off, a clock stands at 0, a span is nobody's. Placement policies are guarded
where their offers are checked, in :mod:`bkclient.placement`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final

from bkclient._client.core import Features
from bkclient.ledger import BookieId, Versioned
from bkclient.observability.recovery_observer import RecoveryObserver
from bkclient.observability.stats import BookieStats, ClientStats
from bkclient.observability.tracer import Span, Tracer
from bkclient.protocol.recovery import Verdict

__all__ = ["guarded_features", "guarded_observer", "guarded_stats", "guarded_tracer"]

_log = logging.getLogger("bkclient.plugins")


class _Complaints:
    """Logs the first failure of each method of one plug-in."""

    def __init__(self, what: str, plugin: object) -> None:
        self._what: Final = f"{what} {type(plugin).__name__}"
        self._told: dict[str, None] = {}

    def about(self, method: str) -> None:
        """``method`` has just raised."""
        if method not in self._told:
            self._told[method] = None
            _log.exception(
                "%s: %s() raised, which it must not; the client goes on, and tells of it only once", self._what, method
            )


class _Stats:
    """:class:`~bkclient.observability.stats.ClientStats` that never raise."""

    def __init__(self, stats: ClientStats) -> None:
        self._stats = stats
        self._complaints = _Complaints("statistics", stats)

    def now(self) -> float:
        try:
            return self._stats.now()
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("now")
            return 0.0

    def operation(self, name: str, seconds: float, code: int) -> None:
        try:
            self._stats.operation(name, seconds, code)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("operation")

    def event(self, name: str, amount: int = 1) -> None:
        try:
            self._stats.event(name, amount)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("event")

    def level(self, name: str, change: int) -> None:
        try:
            self._stats.level(name, change)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("level")


class _AllStats(_Stats):
    """:class:`~bkclient.observability.stats.BookieStats` too."""

    def __init__(self, stats: ClientStats, bookies: BookieStats) -> None:
        super().__init__(stats)
        self._bookies = bookies

    def request(self, bookie_id: str, name: str, seconds: float, code: int) -> None:
        try:
            self._bookies.request(bookie_id, name, seconds, code)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("request")

    def bookie_event(self, bookie_id: str, name: str, amount: int = 1) -> None:
        try:
            self._bookies.bookie_event(bookie_id, name, amount)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("bookie_event")

    def bookie_level(self, bookie_id: str, name: str, change: int) -> None:
        try:
            self._bookies.bookie_level(bookie_id, name, change)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("bookie_level")


class _Tracer:
    """A :class:`~bkclient.observability.tracer.Tracer` that never raises, nor its spans."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._complaints = _Complaints("tracer", tracer)

    @property
    def wants_appends(self) -> bool:
        try:
            return self._tracer.wants_appends
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("wants_appends")
            return False

    def operation(self, name: str, ledger_id: int | None = None) -> AbstractContextManager[Span]:
        return _Operation(self._tracer, self._complaints, name, ledger_id)

    def append(self, ledger_id: int, entry_id: int) -> Callable[[BaseException | None], None]:
        try:
            end = self._tracer.append(ledger_id, entry_id)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("append")
            return _nothing

        def guarded_end(error: BaseException | None) -> None:
            try:
                end(error)
            except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
                self._complaints.about("append")

        return guarded_end


class _Operation:
    """One span, entered and left with its operation whatever becomes of it itself."""

    def __init__(self, tracer: Tracer, complaints: _Complaints, name: str, ledger_id: int | None) -> None:
        self._tracer = tracer
        self._complaints = complaints
        self._name = name
        self._ledger_id = ledger_id
        self._manager: AbstractContextManager[Span] | None = None
        self._span: Span | None = None

    def __enter__(self) -> Span:
        try:
            manager = self._tracer.operation(self._name, self._ledger_id)
            self._span = manager.__enter__()
            self._manager = manager
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("operation")
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._manager is None:
            return
        try:
            self._manager.__exit__(exc_type, exc, traceback)
        except Exception as error:  # noqa: BLE001 - a plug-in, whose failure is logged
            if error is not exc:
                self._complaints.about("operation")

    def set_ledger(self, ledger_id: int) -> None:
        """See :class:`~bkclient.observability.tracer.Span`."""
        if self._span is None:
            return
        try:
            self._span.set_ledger(ledger_id)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("set_ledger")


class _Observer:
    """A :class:`~bkclient.observability.recovery_observer.RecoveryObserver` that never raises."""

    def __init__(self, observer: RecoveryObserver) -> None:
        self._observer = observer
        self._complaints = _Complaints("observer", observer)

    def recovery_started(self, metadata: Versioned) -> None:
        try:
            self._observer.recovery_started(metadata)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("recovery_started")

    def entry_decided(self, ledger_id: int, entry_id: int, verdict: Verdict, bookies: tuple[BookieId, ...]) -> None:
        try:
            self._observer.entry_decided(ledger_id, entry_id, verdict, bookies)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            self._complaints.about("entry_decided")


class _Features:
    """:data:`~bkclient._client.core.Features` that never raise; a feature of which nobody can tell is off."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._told: dict[str, None] = {}

    def __call__(self, name: str) -> bool:
        try:
            is_on = bool(self._features(name))
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            if name not in self._told:
                self._told[name] = None
                _log.exception("whether the feature %s is on could not be told, so it counts as off", name)
            return False
        self._told.pop(name, None)  # the next failure is another one
        return is_on


def guarded_stats(stats: ClientStats | None) -> ClientStats | None:
    """``stats``, unable to raise; of bookies too if they hear of those. None stays None."""
    if stats is None or isinstance(stats, _Stats):
        return stats
    return _AllStats(stats, stats) if isinstance(stats, BookieStats) else _Stats(stats)


def guarded_tracer(tracer: Tracer | None) -> Tracer | None:
    """``tracer``, unable to raise; None stays None."""
    return tracer if tracer is None or isinstance(tracer, _Tracer) else _Tracer(tracer)


def guarded_observer(observer: RecoveryObserver | None) -> RecoveryObserver | None:
    """``observer``, unable to raise; None stays None."""
    return observer if observer is None or isinstance(observer, _Observer) else _Observer(observer)


def guarded_features(features: Features | None) -> Features:
    """``features``, unable to raise; without any, all are off."""
    if features is None:
        return _no_features
    return features if isinstance(features, _Features) else _Features(features)


def _no_features(name: str) -> bool:  # noqa: ARG001 - there are none
    return False


def _nothing(error: BaseException | None) -> None:
    """There is no span to end."""

"""Holding what applications plug in away from the protocol: a plug-in that raises is logged, and nothing else happens.

Statistics, tracers, observers and features are asked in the middle of things: between a bookie's answer and what follows from it.
They promise not to raise. If one does nevertheless, an entry must not be lost for it, a window not lose a place and an update
not its end. So each is wrapped once, when a client is made, and every method that fails is logged, with its
traceback, the first time it does; after that it may go on failing at no more cost than the call.

The wrapper is made from the plug-in's protocol: it has every method that the protocol names. What stands in for a failed
answer: a feature is off, a clock stands at 0, a span belongs to no trace. Placement policies are guarded where their offers are
checked, in :mod:`bkclient.placement`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from types import TracebackType
from typing import Final, ParamSpec, TypeVar, cast

from bkclient._client.core import Features
from bkclient.observability.recovery_observer import RecoveryObserver
from bkclient.observability.stats import BookieStats, ClientStats
from bkclient.observability.tracer import Span, Tracer

__all__ = ["guarded_features", "guarded_observer", "guarded_stats", "guarded_tracer"]

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("bkclient.plugins")


class _Guard:
    """Wraps what belongs to one plug-in, and logs the first failure of each method."""

    def __init__(self, what: str, plugin: object) -> None:
        self._what: Final = f"{what} {type(plugin).__name__}"
        self._told: dict[str, None] = {}

    def __call__(self, method: str, fallback: T, function: Callable[P, T]) -> Callable[P, T]:
        """``function``, which belongs to ``method``, except that it returns ``fallback`` instead of raising."""

        def guarded(*arguments: P.args, **options: P.kwargs) -> T:
            try:
                return function(*arguments, **options)
            except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
                self.complain(method)
                return fallback

        return guarded

    def complain(self, method: str) -> None:
        """Log the exception that is being handled, unless ``method`` has failed before."""
        if method not in self._told:
            self._told[method] = None
            _log.exception(
                "%s: %s() raised, which it must not; the client goes on, and tells of it only once", self._what, method
            )


class _Guarded:
    """What ``protocols`` name of a plug-in. A method that fails returns what ``fallbacks`` has for it, else None."""

    def __init__(self, guard: _Guard, plugin: object, *protocols: type, **fallbacks: object) -> None:
        for protocol in protocols:
            for name in _methods_of(protocol):
                fallback = fallbacks.get(name)
                method = guard(name, None, partial(getattr, plugin, name))()  # to look it up asks the plug-in, too
                setattr(self, name, partial(_always, fallback) if method is None else guard(name, fallback, method))


@cache
def _methods_of(protocol: type) -> tuple[str, ...]:
    """The names of what a protocol asks for; finding them takes longer than making a client otherwise does."""
    return tuple(name for name, _ in inspect.getmembers(protocol, inspect.isfunction) if not name.startswith("_"))


class _Tracer:
    """A :class:`~bkclient.observability.tracer.Tracer` that never raises, nor does what it returns."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer: Final = tracer
        self._guard: Final = _Guard("tracer", tracer)

    @property
    def wants_appends(self) -> bool:
        return self._guard("wants_appends", False, lambda: self._tracer.wants_appends)()  # noqa: FBT003 - the fallback

    def operation(self, name: str, ledger_id: int | None = None) -> AbstractContextManager[Span]:
        begin = self._guard("operation", _NO_OPERATION, lambda: self._tracer.operation(name, ledger_id))
        return _Operation(self._guard, begin())

    def append(self, ledger_id: int, entry_id: int) -> Callable[[BaseException | None], None]:
        begin = self._guard("append", _NOTHING, lambda: self._tracer.append(ledger_id, entry_id))
        return self._guard("append", None, begin())


class _NoSpan:
    """The span of an operation that a tracer could not begin."""

    def set_ledger(self, ledger_id: int) -> None:
        """Nothing is traced."""


_NO_SPAN: Final[Span] = _NoSpan()
_NO_OPERATION: Final[AbstractContextManager[Span]] = nullcontext(_NO_SPAN)


class _Operation:
    """One span, entered and left with its operation, which may fail itself."""

    def __init__(self, guard: _Guard, manager: AbstractContextManager[Span]) -> None:
        self._guard = guard
        self._manager = manager

    def __enter__(self) -> Span:
        span = self._guard("operation", _NO_SPAN, lambda: self._manager.__enter__())()  # noqa: PLW0108 - to look it up may raise
        if span is _NO_SPAN:
            self._manager = _NO_OPERATION  # what was not entered is not left
        return cast("Span", _Guarded(self._guard, span, Span))

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._manager.__exit__(exc_type, exc, traceback)
        except Exception as error:  # noqa: BLE001 - a plug-in, whose failure is logged
            if error is not exc:
                self._guard.complain("operation")


class _Features:
    """:data:`~bkclient._client.core.Features` that never raise; a feature whose state is unknown is off."""

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
    if stats is None or isinstance(stats, _Guarded):
        return stats
    guard = _Guard("statistics", stats)
    hears_of_bookies = guard("request", False, lambda: isinstance(stats, BookieStats))()  # noqa: FBT003 - the fallback
    protocols = (ClientStats, BookieStats) if hears_of_bookies else (ClientStats,)
    return cast("ClientStats", _Guarded(guard, stats, *protocols, now=0.0))


def guarded_tracer(tracer: Tracer | None) -> Tracer | None:
    """``tracer``, unable to raise; None stays None."""
    return tracer if tracer is None or isinstance(tracer, _Tracer) else _Tracer(tracer)


def guarded_observer(observer: RecoveryObserver | None) -> RecoveryObserver | None:
    """``observer``, unable to raise; None stays None."""
    if observer is None or isinstance(observer, _Guarded):
        return observer
    return cast("RecoveryObserver", _Guarded(_Guard("observer", observer), observer, RecoveryObserver))


def guarded_features(features: Features | None) -> Features:
    """``features``, unable to raise; without any, all are off."""
    if features is None:
        return _no_features
    return features if isinstance(features, _Features) else _Features(features)


def _no_features(name: str) -> bool:  # noqa: ARG001 - there are none
    return False


def _always(answer: T, *_: object, **__: object) -> T:
    return answer


_NOTHING: Final[Callable[[BaseException | None], None]] = partial(_always, None)

"""Plug-ins that raise, in every one of their methods, cost a line of the log and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from random import Random
from types import NoneType, TracebackType
from typing import Any, Self, cast, get_origin, get_type_hints

import pytest

import bkclient
from bkclient import BookKeeper
from bkclient._client.plugin_guards import guarded_features, guarded_observer, guarded_stats, guarded_tracer
from bkclient.errors import ArgumentError, Code, LedgerFenced
from bkclient.ledger import BookieId, Versioned
from bkclient.observability.recovery_observer import RecoveryObserver
from bkclient.observability.stats import BookieStats, ClientStats
from bkclient.observability.tracer import Span, Tracer
from bkclient.protocol.recovery import EntryVerdict
from tests.bkclient.fakes import FakeCluster, FakeStore, FakeTransport, fake_cluster, writer_of
from tests.settling import settled


class BrokenError(Exception):
    """What broken plug-ins raise."""


class BrokenStats:
    """Raises in everything that it is asked."""

    def now(self) -> float:
        raise BrokenError

    def operation(self, name: str, seconds: float, code: int) -> None:
        raise BrokenError

    def event(self, name: str, amount: int = 1) -> None:
        raise BrokenError

    def level(self, name: str, change: int) -> None:
        raise BrokenError


class BrokenBookieStats(BrokenStats):
    """As well as in what it is told of bookies."""

    def request(self, bookie_id: str, name: str, seconds: float, code: int) -> None:
        raise BrokenError

    def bookie_event(self, bookie_id: str, name: str, amount: int = 1) -> None:
        raise BrokenError

    def bookie_level(self, bookie_id: str, name: str, change: int) -> None:
        raise BrokenError


class BrokenTracer:
    """Fails to begin spans."""

    wants_appends = True

    def operation(self, name: str, ledger_id: int | None = None) -> AbstractContextManager[Any]:
        raise BrokenError

    def append(self, ledger_id: int, entry_id: int) -> Callable[[BaseException | None], None]:
        raise BrokenError


class _BadSpan:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        raise BrokenError

    def set_ledger(self, ledger_id: int) -> None:
        raise BrokenError


class BadEndings:
    """Fails to end spans, and to learn what they are about."""

    wants_appends = True

    def operation(self, name: str, ledger_id: int | None = None) -> AbstractContextManager[Any]:
        return _BadSpan()

    def append(self, ledger_id: int, entry_id: int) -> Callable[[BaseException | None], None]:
        def end(error: BaseException | None) -> None:
            raise BrokenError

        return end


class Undecided:
    """Cannot even tell whether it wants appends."""

    def __getattr__(self, name: str) -> Any:
        raise BrokenError(name)


class Swallower:
    """Its spans would hide errors, which is not theirs to decide."""

    wants_appends = False

    @contextmanager
    def operation(self, name: str, ledger_id: int | None = None) -> Iterator[_Deaf]:
        try:
            yield _Deaf()
        except LedgerFenced:
            return

    def append(self, ledger_id: int, entry_id: int) -> Callable[[BaseException | None], None]:
        raise AssertionError("nobody asked for it")


class _Deaf:
    def set_ledger(self, ledger_id: int) -> None:
        """It does not matter."""


class BrokenObserver:
    """Raises when a recovery tells it anything."""

    def recovery_started(self, metadata: Versioned) -> None:
        raise BrokenError

    def entry_decided(
        self, ledger_id: int, entry_id: int, verdict: EntryVerdict, bookies: tuple[BookieId, ...]
    ) -> None:
        raise BrokenError


@asynccontextmanager
async def life_with(where: FakeCluster, **plugins: Any) -> AsyncIterator[BookKeeper]:
    """Another client of the same cluster, to the same bookies; whatever reaches the loop's handler fails the test."""
    escaped: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
    transport = FakeTransport("")
    transport.bookies = where.transport.bookies
    async with BookKeeper(FakeStore(where.service), transport, rng=Random(5), **plugins) as bk:
        yield bk
    await settled()
    assert escaped == []


async def write_fail_and_recover(where: FakeCluster, bk: BookKeeper) -> None:
    """Everything that plug-ins hear of: a change of ensemble, failures before and after the quorum, a recovery, reads."""
    writer = await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, password=b"secret")
    assert [await writer.append(b"%d" % number) for number in range(3)] == [0, 1, 2]
    failing = writer.metadata.last_fragment.ensemble[2]
    where.transport.bookies[failing].code = Code.TIMEOUT
    assert await writer.append(b"3") == 3
    await settled()
    assert await writer.append(b"4") == 4
    await settled()
    where.transport.bookies[failing].code = None
    assert (bk.in_flight_entries, writer.in_flight_bytes, writer.in_flight_entries) == (0, 0, 0)
    assert failing not in writer.metadata.last_fragment.ensemble

    reader = await bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
    assert [entry.payload async for entry in reader] == [b"0", b"1", b"2", b"3", b"4"]
    with pytest.raises(LedgerFenced):
        await writer.append(b"late")
    assert (bk.in_flight_entries, writer.in_flight_bytes, writer.in_flight_entries) == (0, 0, 0)
    await bk.delete_ledger(writer.ledger_id)


PLUGINS: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("statistics BrokenStats", lambda: {"stats": BrokenStats()}),
    ("statistics BrokenBookieStats", lambda: {"stats": BrokenBookieStats()}),
    ("tracer BrokenTracer", lambda: {"tracer": BrokenTracer()}),
    ("tracer BadEndings", lambda: {"tracer": BadEndings()}),
    ("tracer Undecided", lambda: {"tracer": Undecided()}),
    ("observer BrokenObserver", lambda: {"observer": BrokenObserver()}),
    ("tracer BadEndings", lambda: {"tracer": BadEndings(), "stats": BrokenStats(), "observer": BrokenObserver()}),
]


@pytest.mark.parametrize(("named", "plugins"), PLUGINS)
async def test_writing_failing_and_recovering_go_on_with_plugins_that_raise(
    named: str, plugins: Callable[[], dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_cluster("abcde") as where:
        async with life_with(where, **plugins()) as bk:
            await write_fail_and_recover(where, bk)
            await write_fail_and_recover(where, bk)
        lines = [record.getMessage() for record in caplog.records if record.name == "bkclient.plugins"]
        assert any(line.startswith(named) for line in lines)
        assert len(set(lines)) == len(lines)  # each method once, however often it raised
        assert all(record.exc_info for record in caplog.records if record.name == "bkclient.plugins")


async def test_features_are_off_while_nobody_can_tell_and_each_failure_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = iter([BrokenError(), BrokenError(), True, BrokenError(), False])

    def features(name: str) -> bool:
        answer = next(answers)
        if isinstance(answer, BrokenError):
            raise answer
        return cast("bool", answer)

    guarded = guarded_features(features)
    assert [guarded("f") for _ in range(5)] == [False, False, True, False, False]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "whether the feature f is on could not be told" in caplog.text


async def test_a_tracer_cannot_hide_what_went_wrong() -> None:
    async with fake_cluster() as where, life_with(where, tracer=Swallower()) as bk:
        writer = await bk.create_ledger(password=b"secret")
        tracer = guarded_tracer(Swallower())
        assert tracer is not None
        with pytest.raises(LedgerFenced), tracer.operation("x"):
            raise LedgerFenced
        await writer.close()


async def test_what_is_guarded_is_not_guarded_again_and_what_is_missing_stays_missing() -> None:
    stats, tracer, observer = (
        guarded_stats(BrokenBookieStats()),
        guarded_tracer(BrokenTracer()),
        guarded_observer(BrokenObserver()),
    )
    assert guarded_stats(stats) is stats
    assert guarded_tracer(tracer) is tracer
    assert guarded_observer(observer) is observer
    assert (guarded_stats(None), guarded_tracer(None), guarded_observer(None)) == (None, None, None)
    features = guarded_features(lambda _: True)
    assert guarded_features(features) is features
    assert not guarded_features(None)("any")


async def test_statistics_of_bookies_are_told_from_those_that_hear_of_the_client_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert not isinstance(guarded_stats(BrokenStats()), BookieStats)
    stats: Any = guarded_stats(BrokenBookieStats())
    assert isinstance(stats, BookieStats)
    for _ in range(2):
        stats.request("a", "ADD_ENTRY", 0.1, Code.OK)
        stats.bookie_event("a", "x")
        stats.bookie_level("a", "x", 1)
    assert len(caplog.records) == 3


class Raises:
    """Raises in whatever it is asked, by a protocol's word."""

    def __init__(self, *protocols: type) -> None:
        def raises(*_: object) -> Any:
            raise BrokenError

        members = {
            name: property(raises) if isinstance(member, property) else raises for name, member in of(*protocols)
        }
        self.__class__ = type("Raises", (Raises,), members)


def of(*protocols: type) -> list[tuple[str, Any]]:
    """The public members of ``protocols``, by name."""
    members = {name: member for protocol in protocols for name, member in vars(protocol).items()}
    return sorted((name, member) for name, member in members.items() if not name.startswith("_"))


def an_answer_of_the_type(annotation: object, answer: object) -> bool:
    """Whether ``answer`` is what a caller may expect who reads ``annotation``."""
    expected = get_origin(annotation) or annotation
    return answer is None if expected in {None, NoneType} else isinstance(answer, cast("type", expected))


GUARDS: list[tuple[Callable[[Any], Any], tuple[type, ...]]] = [
    (guarded_stats, (ClientStats,)),
    (guarded_stats, (ClientStats, BookieStats)),
    (guarded_observer, (RecoveryObserver,)),
    (guarded_tracer, (Tracer,)),
]


@pytest.mark.parametrize(("guard", "protocols"), GUARDS)
def test_every_member_of_every_protocol_is_guarded_and_answers_as_its_type_says(
    guard: Callable[[Any], Any], protocols: tuple[type, ...], caplog: pytest.LogCaptureFixture
) -> None:
    guarded = guard(Raises(*protocols))
    members = of(*protocols)
    assert members
    for name, member in members:
        hints = get_type_hints(member.fget if isinstance(member, property) else member)
        value = getattr(guarded, name)
        if not isinstance(member, property):
            value = value(*([1] * (len(hints) - 1)))
        assert an_answer_of_the_type(hints["return"], value), name
    told = [record.args[1] for record in caplog.records if isinstance(record.args, tuple)]
    assert told == [name for name, _ in members]


@pytest.mark.parametrize(("guard", "protocols"), GUARDS)
def test_a_plugin_whose_methods_cannot_even_be_found_is_guarded_as_well(
    guard: Callable[[Any], Any], protocols: tuple[type, ...]
) -> None:
    if BookieStats in protocols:
        return  # it is told from others by its methods
    guarded = guard(Undecided())
    for name, member in of(*protocols):
        if not isinstance(member, property):
            getattr(guarded, name)(*([1] * (len(get_type_hints(member)) - 1)))


def test_the_span_of_a_tracer_is_guarded_in_every_member(caplog: pytest.LogCaptureFixture) -> None:
    span = Raises(Span)

    class Yields(Swallower):
        @contextmanager
        def operation(self, name: str, ledger_id: int | None = None) -> Iterator[Any]:
            yield span

    tracer = guarded_tracer(Yields())
    assert tracer is not None
    with tracer.operation("x") as guarded:
        for name, member in of(Span):
            assert getattr(guarded, name)(*([1] * (len(get_type_hints(member)) - 1))) is None
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == [
        name for name, _ in of(Span)
    ]


@pytest.mark.parametrize("make", [BrokenTracer, Undecided])
def test_what_a_tracer_could_not_begin_is_ended_in_silence(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    guarded = guarded_tracer(make())
    assert guarded is not None
    with guarded.operation("x") as span:
        span.set_ledger(1)
    guarded.append(1, 2)(None)
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == ["operation", "append"]


async def test_errors_of_the_caller_are_not_taken_for_those_of_a_tracer(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster() as where, life_with(where, tracer=Swallower()) as bk:
        writer = await writer_of(where)
        await writer.append(b"x")
        with pytest.raises(ArgumentError):
            await bk.create_ledger(ensemble_size=0)
    assert "must not" not in caplog.text


async def test_a_configuration_of_another_type_is_refused() -> None:
    wrong: Any = {"metadata_uri": "mem://x"}
    async with fake_cluster() as where:
        with pytest.raises(ArgumentError, match="config must be a ClientConfig, got dict"):
            BookKeeper(where.store, where.transport, config=wrong)
    with pytest.raises(ArgumentError, match="config must be a ClientConfig, got dict"):
        await bkclient.connect("mem://x", config=wrong).__aenter__()

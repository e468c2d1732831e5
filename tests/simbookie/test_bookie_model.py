"""Any sequence of requests, against a bookie of fifty lines that has no journal, no loop and no shortcuts."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.wire.messages import (
    AddRequest,
    BatchReadRequest,
    ForceLedgerRequest,
    ReadLacRequest,
    ReadRequest,
    Response,
    Status,
    WriteLacRequest,
)
from simbookie.storage.base import CrashMode
from simbookie.storage.group_commit import JournalConfig

Virtually = Callable[[Callable[[], Any]], None]
KEYS = (b"a" * 20, b"b" * 20)


@dataclass
class ModelLedger:
    key: bytes
    fenced: bool = False
    entries: dict[int, bytes] = field(default_factory=dict)
    explicit_lac: bytes | None = None
    lac: int = -1


class Model:
    """What the protocol says, for one request at a time."""

    def __init__(self) -> None:
        self.ledgers: dict[int, ModelLedger] = {}
        self.tombstones: dict[int, None] = {}

    def keyed(self, ledger_id: int, key: bytes) -> ModelLedger | Status:
        if ledger_id not in self.ledgers:
            if ledger_id in self.tombstones:
                return Status.NO_LEDGER
            self.ledgers[ledger_id] = ModelLedger(key)
        ledger = self.ledgers[ledger_id]
        return ledger if ledger.key == key else Status.UNAUTHORIZED

    def add(self, request: AddRequest) -> tuple[Any, ...]:
        ledger = self.keyed(request.ledger_id, request.master_key)
        if ledger is Status.NO_LEDGER:
            return (Status.FENCED,)
        if isinstance(ledger, Status):
            return (ledger,)
        if ledger.fenced and not request.recovery:
            return (Status.FENCED,)
        ledger.entries[request.entry_id] = request.body
        ledger.lac = max(ledger.lac, struct.unpack_from(">q", request.body, 16)[0])
        return (Status.OK,)

    def located(self, ledger_id: int, fence_key: bytes | None) -> ModelLedger | Status:
        if fence_key is None:
            return self.ledgers.get(ledger_id, Status.NO_LEDGER)
        ledger = self.keyed(ledger_id, fence_key)
        if isinstance(ledger, ModelLedger):
            ledger.fenced = True
        return ledger

    def read(self, request: ReadRequest) -> tuple[Any, ...]:
        ledger = self.located(request.ledger_id, request.fence_key)
        if isinstance(ledger, Status):
            return (ledger, None, None)
        entry_id = max(ledger.entries, default=-1) if request.entry_id == -1 else request.entry_id
        if entry_id not in ledger.entries:
            return (Status.NO_ENTRY, None, None)
        return (Status.OK, ledger.entries[entry_id], None if request.fence_key else ledger.lac)

    def batch(self, request: BatchReadRequest) -> tuple[Any, ...]:
        ledger = self.located(request.ledger_id, request.fence_key)
        if isinstance(ledger, Status):
            return (ledger, ())
        bodies: list[bytes] = []
        used = 36
        while (body := ledger.entries.get(request.entry_id + len(bodies))) is not None:
            used += len(body) + 4
            if bodies and used > request.max_size:
                break
            bodies.append(body)
            # all entries of this test have one size, so the cap by the first one never shows
            if len(bodies) == request.max_count:
                break
        return (Status.OK if bodies else Status.NO_ENTRY, tuple(bodies))

    def write_lac(self, request: WriteLacRequest) -> tuple[Any, ...]:
        ledger = self.keyed(request.ledger_id, request.master_key)
        if isinstance(ledger, Status):
            return (ledger,)
        ledger.explicit_lac = request.body
        ledger.lac = max(ledger.lac, request.lac)
        return (Status.OK,)

    def read_lac(self, request: ReadLacRequest) -> tuple[Any, ...]:
        ledger = self.ledgers.get(request.ledger_id)
        if ledger is None or (ledger.explicit_lac is None and not ledger.entries):
            return (Status.NO_ENTRY, None, None)
        last = ledger.entries[max(ledger.entries)] if ledger.entries else None
        return (Status.IO_ERROR if last is None else Status.OK, ledger.explicit_lac, last)

    def delete(self, ledger_id: int) -> bool:
        ledger = self.ledgers.pop(ledger_id, None)
        if ledger is not None and ledger.fenced:
            self.tombstones[ledger_id] = None
        return ledger is not None

    def restart(self) -> None:
        self.tombstones.clear()

    def execute(self, request: Any) -> tuple[Any, ...]:
        match request:
            case AddRequest():
                return self.add(request)
            case ReadRequest():
                return self.read(request)
            case BatchReadRequest():
                return self.batch(request)
            case WriteLacRequest():
                return self.write_lac(request)
            case ReadLacRequest():
                return self.read_lac(request)
            case _:
                return (Status.OK,)


def essence(response: Response) -> tuple[Any, ...]:
    names = ("status", "body", "max_lac", "bodies", "lac_body", "last_entry_body")
    return tuple(getattr(response, name) for name in names if hasattr(response, name))


ledger_ids = st.integers(1, 2)
entry_ids = st.integers(0, 4)
keys = st.sampled_from((KEYS[0], KEYS[0], KEYS[0], KEYS[1]))
fence_keys = st.one_of(st.none(), st.none(), keys)


@st.composite
def adds(draw: st.DrawFn) -> AddRequest:
    ledger_id, entry_id = draw(ledger_ids), draw(entry_ids)
    header = struct.pack(">qqqq", ledger_id, entry_id, draw(st.integers(-1, 4)), 0)
    payload = draw(st.binary(min_size=2, max_size=2))
    return AddRequest(ledger_id, entry_id, draw(keys), header, payload, recovery=draw(st.booleans()))


@st.composite
def lac_writes(draw: st.DrawFn) -> WriteLacRequest:
    ledger_id, lac = draw(ledger_ids), draw(st.integers(-1, 6))
    return WriteLacRequest(ledger_id, lac, draw(keys), struct.pack(">qq", ledger_id, lac))


requests = st.one_of(
    adds(),
    adds(),
    st.builds(ReadRequest, ledger_ids, st.integers(-1, 4), fence_keys),
    st.builds(BatchReadRequest, ledger_ids, entry_ids, st.integers(-1, 3), st.integers(0, 200), fence_keys),
    lac_writes(),
    st.builds(ReadLacRequest, ledger_ids),
    st.builds(ForceLedgerRequest, ledger_ids),
)
steps = st.one_of(
    requests,
    requests,
    requests,
    st.tuples(st.just("delete"), ledger_ids),
    st.tuples(st.just("crash"), st.sampled_from(CrashMode)),
    st.just(("shutdown", None)),
)


@pytest.mark.rule("BK-1")
@settings(max_examples=150, deadline=None)
@given(story=st.lists(steps, max_size=30))
def test_a_bookie_answers_what_the_model_answers_across_crashes_once_everything_is_durable(
    kit: Any, virtually: Virtually, story: list[Any]
) -> None:
    async def run() -> None:
        model = Model()
        bench = kit.Bench(journal=JournalConfig(group_wait_max_s=0.001, sync_latency_s=0.002))
        for step in story:
            match step:
                case ("delete", ledger_id):
                    assert bench.bookie.delete_ledger(ledger_id) == model.delete(ledger_id)
                case ("crash", mode):
                    await asyncio.sleep(0.1)
                    bench.bookie.crash(mode)
                    bench.bookie.start()
                    model.restart()
                case ("shutdown", _):
                    stopped = asyncio.Event()
                    bench.bookie.shutdown(stopped.set)
                    await stopped.wait()
                    bench.bookie.start()
                    model.restart()
                case request:
                    answers = bench.submit(request)
                    await asyncio.sleep(0.1)
                    assert [essence(answer) for answer in answers] == [model.execute(request)], request
        known = {ledger_id: sorted(ledger.entries) for ledger_id, ledger in sorted(model.ledgers.items())}
        assert {ledger_id: bench.storage.entry_ids(ledger_id) for ledger_id in bench.bookie.ledger_ids()} == known

    virtually(run)


@pytest.mark.rule("BK-24")
@settings(max_examples=80, deadline=None)
@given(
    story=st.lists(st.tuples(requests, st.sampled_from((0.0, 0.0, 0.001, 0.002))), max_size=25),
    mode=st.sampled_from(CrashMode),
)
def test_whatever_was_answered_survives_a_crash_at_any_moment(
    kit: Any, virtually: Virtually, story: list[tuple[Any, float]], mode: CrashMode
) -> None:
    async def run() -> None:
        bench = kit.Bench(journal=JournalConfig(group_wait_max_s=0.001, sync_latency_s=0.002))
        asked: list[tuple[Any, list[Response]]] = []
        for step, pause in story:
            asked.append((step, bench.submit(step)))
            await asyncio.sleep(pause)
        successful = [step for step, answers in asked if [answer.status for answer in answers] == [Status.OK]]
        acked = [(step.ledger_id, step.entry_id) for step in successful if isinstance(step, AddRequest)]
        fenced = [step.ledger_id for step in successful if isinstance(step, ReadRequest) and step.fence_key is not None]
        bench.bookie.crash(mode)
        bench.bookie.start()
        for ledger_id, entry_id in acked:
            assert bench.submit(ReadRequest(ledger_id, entry_id)).statuses == [Status.OK]
        for ledger_id in fenced:
            refusals = {answer.status for key in KEYS for answer in bench.submit(kit.add(ledger_id, 9, master_key=key))}
            assert refusals == {Status.FENCED, Status.UNAUTHORIZED}

    virtually(run)

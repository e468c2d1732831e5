"""What BookKeeper's ordered thread pools promise holds here without threads: requests of a ledger take effect in their order.

They may come from any number of clients and be of any kind. Reads see what was added before them, adds what was fenced before
them, and adds of a ledger are acknowledged in their order, although a journal, or two, syncs in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.wire.messages import AddResponse, ReadRequest, ReadResponse, Status
from simbookie.bookie import Bookie
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.sorted import SortedLedgerStore
from simbookie.world.loop import VirtualTimeLoop

LEDGERS = (1, 2, 3)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "read", "fence", "wait"]),
        st.sampled_from(LEDGERS),
        st.sampled_from(["client 1", "client 2"]),
    ),
    max_size=40,
)


def bookie_on(disk: SimulatedDisk) -> Bookie:
    ledgers = Folder(disk, "ledgers")
    store = SortedLedgerStore(Folders([ledgers], Random(1)))
    return Bookie("b0", JournaledStorage([Folder(disk, "j0"), Folder(disk, "j1")], [ledgers], store))


async def played(kit: Any, operations: list[tuple[str, int, str]]) -> None:
    loop = asyncio.get_running_loop()
    bookie = bookie_on(SimulatedDisk(Random(1), costs=DiskCosts(sync_s=0.003)))
    started = asyncio.Event()
    bookie.start(started.set)
    await started.wait()
    lasts, fenced = dict.fromkeys(LEDGERS, -1), set[int]()
    expected: list[tuple[Any, Status]] = []
    acknowledged: dict[int, list[int]] = {ledger_id: [] for ledger_id in LEDGERS}

    def answer_of(ledger_id: int) -> Any:
        future: asyncio.Future[Any] = loop.create_future()

        def respond(response: Any) -> None:
            if isinstance(response, AddResponse) and response.status is Status.OK:
                acknowledged[ledger_id].append(response.entry_id)
            future.set_result(response)

        respond.future = future  # type: ignore[attr-defined]
        return respond

    for name, ledger_id, source in operations:
        if name == "wait":
            await asyncio.sleep(0.002)
            continue
        respond = answer_of(ledger_id)
        if name == "add":
            entry_id = lasts[ledger_id] + 1
            expected.append((respond.future, Status.FENCED if ledger_id in fenced else Status.OK))
            if ledger_id not in fenced:
                lasts[ledger_id] = entry_id
            bookie.submit(kit.add(ledger_id, entry_id), respond, source=source)
        elif name == "read":
            is_there = lasts[ledger_id] >= 0
            nothing = Status.NO_ENTRY if ledger_id in fenced else Status.NO_LEDGER
            expected.append((respond.future, Status.OK if is_there else nothing))
            bookie.submit(ReadRequest(ledger_id, max(0, lasts[ledger_id])), respond, source=source)
        else:
            fenced.add(ledger_id)
            bookie.submit(kit.fencing_read(ledger_id, 0), respond, source=source)
    for future, status in expected:
        response = await future
        assert response.status is status, response
        if isinstance(response, ReadResponse) and status is Status.OK:
            assert response.body is not None
    for ledger_id, entries in acknowledged.items():
        assert entries == list(range(lasts[ledger_id] + 1))
    bookie.crash()


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_requests_of_a_ledger_take_effect_in_their_order(kit: Any, operations: list[tuple[str, int, str]]) -> None:
    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(played(kit, operations))
    finally:
        loop.close()


def test_the_order_is_seen_to_matter(kit: Any, virtually: Callable[[Any], None]) -> None:
    """Between two adds a fence: the one before it is acknowledged, the one behind it refused, from any client."""
    virtually(lambda: played(kit, [("add", 1, "client 1"), ("fence", 1, "client 2"), ("add", 1, "client 1")]))

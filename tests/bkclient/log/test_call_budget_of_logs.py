"""How many Python calls of the client a message costs, in batches: exact, as ``test_call_budget.py`` has them for entries."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import pytest

from bkclient.log import Logs, LogWriter
from tests.bkclient.test_call_budget import CallCounter
from tests.bkclient.virtual_cluster import VirtualCluster, run_in_cluster

MESSAGES = 3_000
#: What is done once for a batch of 1,000 messages is 0.1 to 0.2 calls for each of them.
BUDGETS = {"publish": 2.3, "publish with keys": 3.3, "read": 2.3, "cursor": 9.4}
#: A change that saves more than this has to say so.
SLACK = 0.3


async def publish(_: Logs, log: LogWriter) -> None:
    for _number in range(MESSAGES):
        log.publish_nowait(bytes(100))
    await log.flush()


async def publish_with_keys(_: Logs, log: LogWriter) -> None:
    for _number in range(MESSAGES):
        log.publish_nowait(bytes(100), key="customer-7")
    await log.flush()


async def read(logs: Logs, _: LogWriter) -> None:
    async with logs.reader("log", follow=False) as reader:
        assert len([message async for message in reader]) == MESSAGES + 1


async def read_by_a_cursor(logs: Logs, _: LogWriter) -> None:
    async with logs.cursor("log", "c") as cursor:
        for _number in range(MESSAGES):
            cursor.acknowledge(await anext(cursor))


Operation = Callable[[Logs, LogWriter], Awaitable[None]]
OPERATIONS: dict[str, Operation] = {
    "publish": publish,
    "publish with keys": publish_with_keys,
    "read": read,
    "cursor": read_by_a_cursor,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_message_makes_the_calls_it_may(name: str) -> None:
    counter = CallCounter()

    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client() as client:
            logs = Logs(client)
            await logs.create("log")
            async with logs.writer("log") as log:
                await log.publish(b"so that a ledger is there", key="k")
                if not name.startswith("publish"):
                    await publish(logs, log)
                    await log.aclose()
                with counter:
                    await OPERATIONS[name](logs, log)

    run_in_cluster(program)
    calls = counter.of_client / MESSAGES
    assert calls <= BUDGETS[name], "more calls than before; if they are worth it, raise the budget"
    if sys.version_info < (3, 12):  # comprehensions are calls up to CPython 3.11
        assert calls > BUDGETS[name] - SLACK, "fewer calls than before; lower the budget, so that it stays so"

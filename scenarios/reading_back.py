"""What the last clients of a run do: recover and read ledgers, take over and read logs, once all faults have ended."""

from __future__ import annotations

from random import Random
from typing import Final

import anyio

from bkclient.errors import BookKeeperError
from bkclient.log import Logs, PublishSettings
from scenarios.liveness import StuckError
from scenarios.recording.client import RecordedClient, each_entry
from scenarios.recording.log import RecordedLogs, partition_of

__all__ = ["names_of_parts", "read_ledger_back", "read_log_back"]

#: Attempts before the run counts as stuck, and the pause between two attempts.
ATTEMPTS: Final = 8
_PAUSE_S: Final = 5.0


async def read_ledger_back(client: RecordedClient, ledger_id: int) -> None:
    """Recover the ledger and read all of it; :class:`StuckError` if that is not possible."""
    problem = ""
    for _ in range(ATTEMPTS):
        try:
            reader = await client.open_ledger(ledger_id, recover=True)
            async for _entry in each_entry(reader):
                pass
        except BookKeeperError as error:
            problem = str(error)
            await anyio.sleep(_PAUSE_S)
        else:
            return
    raise StuckError(ledger_id, problem)


async def names_of_parts(logs: Logs, name: str) -> list[str]:
    """The logs that hold the messages, which :meth:`~bkclient.log.Logs.partitions` tells too, after a look at each of them."""
    count = (await logs.info(name)).partitions
    return [partition_of(name, number) for number in range(count)] or [name]


async def read_log_back(client: RecordedClient, name: str, rng: Random) -> None:
    """Take the log over and read all of it; :class:`StuckError` if that is not possible. ``rng`` makes ids."""
    logs, problem = RecordedLogs(client, rng=rng), ""
    for _ in range(ATTEMPTS):
        try:
            await logs.info(name)
            async with logs.writer(name, owner=client.log.actor, settings=PublishSettings(give_up_s=_PAUSE_S)):
                pass  # the last ledger is recovered, so that its end is known
            for part in await names_of_parts(logs, name):
                async with logs.reader(part, follow=False) as reader:
                    async for _message in reader:
                        pass
                if (await logs.info(part)).compacted is not None:
                    async with logs.reader(part, follow=False, compacted=True) as reader:
                        async for _message in reader:
                            pass
        except BookKeeperError as error:
            problem = f"log {name}: {error}"
            await anyio.sleep(_PAUSE_S)
        else:
            return
    raise StuckError(-1, problem)

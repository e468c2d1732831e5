"""Playing what a program does with logs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, Final

import anyio

from bkclient.log import ConsumerMode, LogDeposed, LogSettings, LogWriter, MessageId, PublishSettings
from scenarios.conditions import Conditions
from scenarios.plan import log_operations as ops
from scenarios.plan.base_operations import ClientOperation
from scenarios.playing.ledgers import PlayedLedgers
from scenarios.playing.outcomes import MissingError, all_ended
from scenarios.reading_back import names_of_parts
from scenarios.recording.client import RecordedClient
from scenarios.recording.log import RecordedLogs

__all__ = ["PlayedLogs"]


class PlayedLogs:
    """The operations on logs of one program, and the logs that it owns. ``rng`` makes payloads and ids."""

    def __init__(self, client: RecordedClient, ledgers: PlayedLedgers, conditions: Conditions, rng: Random) -> None:
        self._client = client
        self._logs = RecordedLogs(client, rng=rng)
        self._ledgers = ledgers
        self._conditions = conditions
        self._rng = rng
        self._writers: dict[str, LogWriter] = {}
        #: How each operation is played.
        self._players: Final[Mapping[type[ClientOperation], Callable[[Any], Awaitable[object]]]] = {
            ops.MakeLog: self._make,
            ops.OwnLog: self._own,
            ops.PublishMessages: self._publish,
            ops.FlushLog: lambda operation: self._writer(operation.log).flush(),
            ops.ReleaseOwnLog: lambda operation: self._writer(operation.log).aclose(),
            ops.ReadWholeLog: self._read,
            ops.TailLog: self._tail,
            ops.ConsumeLog: self._consume,
            ops.JoinGroup: self._join,
            ops.DropCursor: lambda operation: self._logs.remove_cursor(operation.log, operation.cursor),
            ops.TrimLog: lambda operation: self._logs.trim(operation.log, MessageId.LATEST),
            ops.CompactLog: lambda operation: self._logs.compact(operation.log),
            ops.RecoverLogEnd: self._recover,
        }

    async def play(self, operation: ClientOperation) -> None:
        """Carry out an operation on a log that exists, or will."""
        if not isinstance(operation, ops.MakeLog):
            await self._ledgers.log_made(getattr(operation, "log"))  # noqa: B009 - every operation on logs has it
        await self._players[type(operation)](operation)

    async def _make(self, operation: ops.MakeLog) -> None:
        conditions, sizes = self._conditions, operation.sizes
        settings = LogSettings(
            ensemble_size=sizes.ensemble if sizes else conditions.ensemble_size,
            write_quorum_size=sizes.write_quorum if sizes else conditions.write_quorum_size,
            ack_quorum_size=sizes.ack_quorum if sizes else conditions.ack_quorum_size,
            max_ledger_entries=operation.entries_max,
            min_ledger_s=0,
            max_ledger_s=operation.age_s,
        )
        await self._logs.create(operation.log, settings, partitions=operation.partitions)
        self._ledgers.log_created(operation.log)

    async def _own(self, operation: ops.OwnLog) -> None:
        settings = PublishSettings(batch_messages=operation.batch, give_up_s=operation.give_up_s)
        writer = self._logs.writer(operation.log, owner=self._client.log.actor, settings=settings)
        await self._logs.info(operation.log)
        await writer.__aenter__()
        self._writers[operation.log] = writer

    async def _publish(self, operation: ops.PublishMessages) -> None:
        writer = self._writer(operation.log)
        started: deque[asyncio.Future[MessageId]] = deque()
        for number in range(operation.count):
            while len(started) >= operation.window:
                await started.popleft()
            if operation.pause_s:
                await anyio.sleep(operation.pause_s)
            key = f"k{number % operation.keys}" if operation.keys else None
            is_deletion = operation.deletions and number % operation.deletions == operation.deletions - 1
            payload = b"" if is_deletion else self._rng.randbytes(operation.size)
            started.append(writer.publish_nowait(payload, key=key))
        if not operation.nowait:
            await all_ended(started)

    async def _read(self, operation: ops.ReadWholeLog) -> None:
        for part in await names_of_parts(self._logs, operation.log):
            async with self._logs.reader(part, follow=False, compacted=operation.compacted) as reader:
                async for _ in reader:
                    pass

    async def _tail(self, operation: ops.TailLog) -> None:
        async with self._logs.reader(operation.log, compacted=operation.compacted) as reader:
            for _ in range(operation.count):
                await anext(reader)
                if operation.pause_s:
                    await anyio.sleep(operation.pause_s)

    async def _consume(self, operation: ops.ConsumeLog) -> None:
        async with self._logs.cursor(operation.log, operation.cursor) as cursor:
            for _ in range(operation.count):
                cursor.acknowledge(await anext(cursor))
                if operation.pause_s:
                    await anyio.sleep(operation.pause_s)

    async def _join(self, operation: ops.JoinGroup) -> None:
        modes = {(True, False): ConsumerMode.FAILOVER, (False, True): ConsumerMode.EXCLUSIVE}
        mode = modes.get((operation.failover, operation.exclusive), ConsumerMode.SHARED)
        async with self._logs.consumer(operation.log, operation.cursor, mode=mode) as consumer:
            for _ in range(operation.count):
                try:
                    async with asyncio.timeout(operation.idle_s):
                        message = await consumer.receive()
                except TimeoutError:
                    return
                if operation.pause_s:
                    await anyio.sleep(operation.pause_s)
                with suppress(LogDeposed):  # it is another one's meanwhile, who gets the message too
                    consumer.acknowledge(message)

    async def _recover(self, operation: ops.RecoverLogEnd) -> None:
        ledger_id = next(iter((await self._logs.info(operation.log)).open_ledgers), None)
        if ledger_id is None:
            raise MissingError(f"no ledger of log {operation.log} can be written to")
        reader = await self._client.open_ledger(ledger_id, recover=True)
        await reader.aclose()

    def _writer(self, log: str) -> LogWriter:
        found = self._writers.get(log)
        if found is None:
            raise MissingError(f"log {log} is not owned here")
        return found

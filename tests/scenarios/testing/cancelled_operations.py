"""What a program does that may be cancelled: each call of ledgers and logs that waits, and how handles are used around it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bkclient import LedgerWriter
from bkclient.errors import BookKeeperError
from bkclient.log import ConsumerMode, LogSettings
from tests.scenarios.testing.cancelling import Operation, Program

__all__ = ["OPERATIONS"]


async def create_and_write(program: Program) -> None:
    async with await program.create() as writer:
        await program.append(writer, b"one")
        writer.append_nowait(b"two")
        await writer.flush()
        program.acknowledged[writer.ledger_id].append(b"two")


async def write_at_once(program: Program) -> None:
    """More than fits into the windows, by several tasks of which one fails or is cancelled with the others."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(6):
            tasks.create_task(program.append(program.writer, b"at once %d" % number))


async def submit_and_force(program: Program) -> None:
    writer = program.writer
    futures = [await writer.submit(b"submitted %d" % number) for number in range(4)]
    await writer.force()
    await asyncio.gather(*futures)
    program.acknowledged[writer.ledger_id] += [b"submitted %d" % number for number in range(4)]


async def deferred(program: Program) -> None:
    async with await program.bk.create_ledger(
        ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, deferred_sync=True
    ) as writer:
        await writer.append(b"deferred")
        await writer.force()
        program.acknowledged[writer.ledger_id] = [b"deferred"]
        await writer.append(b"not forced")


async def advanced(program: Program) -> None:
    async with await program.bk.create_advanced_ledger() as writer, asyncio.TaskGroup() as tasks:
        for entry_id in (2, 0, 3, 1):
            tasks.create_task(writer.append(entry_id, b"advanced %d" % entry_id))


async def close(program: Program) -> None:
    program.writer.append_nowait(b"in flight")
    await program.writer.close()


async def recover(program: Program) -> None:
    async with await program.bk.open_ledger(program.writer.ledger_id, recover=True) as reader:
        assert [entry.payload async for entry in reader][:3] == [b"open 0", b"open 1", b"open 2"]


async def read(program: Program) -> None:
    async with await program.bk.open_ledger(program.closed_id) as reader:
        await reader.read_last_entry()
        await reader.read(3, parallel=True)
        async for entry in reader.read_range(0, 5):
            assert entry.payload == b"closed %d" % entry.entry_id
        async for _ in reader.read_range(1, 4):
            break  # a generator that is left behind
        await reader.read_batch(1)


async def tail(program: Program) -> None:
    tail = program.reader.tail()
    for _ in range(2):
        await anext(tail)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            async for _ in tail:
                pass
    await program.append(program.writer, b"for the tail")
    found = await anext(tail)
    assert found.entry_id >= 2, "none twice"
    # which is left behind, as many programs leave it


async def long_poll(program: Program) -> None:
    await asyncio.gather(
        program.reader.read_last_add_confirmed_and_entry(4, 0.5),
        program.reader.read_last_add_confirmed_and_entry(5, 0.5, parallel=True),
        program.append(program.writer, b"polled"),
    )


async def metadata(program: Program) -> None:
    ledger: LedgerWriter = await program.create()
    watching = program.bk.watch_metadata(ledger.ledger_id)
    await anext(watching)
    await ledger.aclose()
    await anext(watching)
    await program.bk.delete_ledger(ledger.ledger_id)
    assert [each async for each in program.bk.list_ledgers()]
    assert await anext(watching, None) is None


async def log_writer(program: Program, name: str = "log") -> None:
    async with program.logs.writer(name) as log:
        for number in range(3):
            await program.publish(log, name, b"new %d" % number)
        log.publish_nowait(b"in flight")
        await log.flush()


async def log_writer_of_partitions(program: Program) -> None:
    await log_writer(program, "parts")


async def log_reader(program: Program, name: str = "log") -> None:
    async with program.logs.reader(name) as reader:
        found = [(await anext(reader)).payload for _ in range(3)]
        assert {*found} == {b"0", b"1", b"2"}
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(reader)
    async with program.logs.reader(name, follow=False) as reader:
        assert len(await reader.next_batch()) >= 1


async def log_reader_of_partitions(program: Program) -> None:
    await log_reader(program, "parts")


async def consumer(program: Program, name: str = "log") -> None:
    async with program.logs.consumer(name, "group", mode=ConsumerMode.SHARED) as consumer:
        consumer.acknowledge(await consumer.receive())
        await consumer.flush()
        consumer.reject(await consumer.receive())
        assert await consumer.receive_batch()


async def consumer_of_partitions(program: Program) -> None:
    await consumer(program, "parts")


async def cursor(program: Program, name: str = "log") -> None:
    async with program.logs.cursor(name, "cursor") as cursor:
        cursor.acknowledge(await anext(cursor))
        await cursor.flush()
        cursor.acknowledge(await anext(cursor))
        await cursor.next_batch()
        await cursor.backlog_entries()


async def cursor_of_partitions(program: Program) -> None:
    await cursor(program, "parts")


async def administer_logs(program: Program) -> None:
    logs = program.logs
    with suppress(BookKeeperError):
        await logs.create("new", LogSettings(), partitions=2)
    await logs.info("log")
    await logs.compact("log")
    await logs.trim("log")
    await logs.delete("new")


OPERATIONS: dict[str, Operation] = {
    each.__name__: each
    for each in (
        create_and_write,
        write_at_once,
        submit_and_force,
        deferred,
        advanced,
        close,
        recover,
        read,
        tail,
        long_poll,
        metadata,
        log_writer,
        log_writer_of_partitions,
        log_reader,
        log_reader_of_partitions,
        consumer,
        consumer_of_partitions,
        cursor,
        cursor_of_partitions,
        administer_logs,
    )
}

"""Follows a log and writes its messages to Parquet files, each once, for Spark, pandas or DuckDB.

    pip install "bkclient[zookeeper]" pyarrow
    python examples/log_to_parquet.py zk://127.0.0.1:2181/ledgers events ./events

    spark.read.parquet("./events").groupBy("key").count().show()

A cursor remembers what is in files. A file first has a name that nobody reads, then the cursor moves behind its messages, then it
gets its name. A program that was killed in between has left a file without a name, and the next one sees by the cursor whether to
give it one. Where two programs run, because one was taken for dead, the cursor of only one of them can move.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import bkclient
from bkclient import BookKeeper
from bkclient.log import LogCursor, LogMessage, Logs, MessageId

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("published", pa.timestamp("ms", tz="UTC")),
        ("key", pa.string()),
        ("payload", pa.binary()),
    ]
)


Writing = Callable[[Path, list[LogMessage]], Awaitable[None]]


def write_file(path: Path, messages: list[LogMessage]) -> None:
    """Write messages into a file."""
    rows = [
        {"id": str(message.id), "published": message.publish_ms, "key": message.key, "payload": message.payload}
        for message in messages
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)


async def write_in_thread(path: Path, messages: list[LogMessage]) -> None:
    """The same, while the program goes on."""
    await asyncio.to_thread(write_file, path, messages)


def temporary_name(messages: list[LogMessage], program: str) -> str:
    """The name of a file that nobody reads: its first and last entry, and who wrote it."""
    first, last = messages[0].id, messages[-1].id
    return f"{first.ledger_id:012}-{first.entry_id:012}_{last.ledger_id:012}-{last.entry_id:012}_{program}.tmp"


def give_name(temporary: Path) -> Path:
    """Let readers see a file."""
    return temporary.rename(temporary.with_name(f"{temporary.name.partition('_')[0]}.parquet"))


def tidy_up(folder: Path, position: MessageId) -> None:
    """Give files that a program left their names if the cursor is behind all their messages, and remove others."""
    folder.mkdir(parents=True, exist_ok=True)
    for temporary in sorted(folder.glob("*.tmp")):
        first, last, _ = temporary.name.split("_")
        ledger_id, entry_id = map(int, last.split("-"))
        is_remembered = (ledger_id, entry_id) < (position.ledger_id, position.entry_id)
        if is_remembered and not (folder / f"{first}.parquet").exists():
            give_name(temporary)
        else:
            temporary.unlink()


async def next_batch(cursor: LogCursor, count: int, wait_s: float) -> list[LogMessage]:
    """Some ``count`` messages, whole entries only; fewer if no more come for ``wait_s`` seconds."""
    messages: list[LogMessage] = []
    while len(messages) < count or messages[-1].id.batch_index not in (-1, messages[-1].batch_size - 1):
        try:
            async with asyncio.timeout(wait_s):
                messages.append(await anext(cursor))
        except TimeoutError:
            break
    return messages


async def follow(
    bk: BookKeeper,
    log: str,
    folder: Path,
    *,
    count: int = 10_000,
    wait_s: float = 5.0,
    files: int | None = None,
    write: Writing = write_in_thread,
) -> None:
    """Write files of some ``count`` messages until cancelled, or until ``files`` are written.

    Raises :class:`bkclient.log.LogDeposed` if another program has begun to do the same.
    """
    program = f"{bk.rng.getrandbits(64):016x}"
    async with Logs(bk).cursor(log, "to-parquet") as cursor:
        tidy_up(folder, cursor.position)
        while files is None or files > 0:
            messages = await next_batch(cursor, count, wait_s)
            if not messages:
                continue
            temporary = folder / temporary_name(messages, program)
            await write(temporary, messages)
            cursor.acknowledge_through(messages[-1])
            await cursor.flush()
            print(f"{give_name(temporary).name}: {len(messages)} messages", flush=True)
            files = None if files is None else files - 1


async def main(uri: str, log: str, folder: Path) -> None:
    """Until Ctrl-C."""
    async with bkclient.connect(uri) as bk:
        await follow(bk, log, folder)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))

"""Follows a log and writes its messages to Parquet files, each once, for Spark, pandas or DuckDB.

    pip install "bkclient[zookeeper]" pyarrow
    python examples/log_to_parquet.py zk://127.0.0.1:2181/ledgers events ./events

    spark.read.parquet("./events").groupBy("key").count().show()

A cursor remembers what is in files. It moves once a file is there, and a file is named after its first message: after a crash the
same messages begin a file of the same name, so that none is there twice.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import bkclient
from bkclient import BookKeeper
from bkclient.log import LogCursor, LogMessage, Logs

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("published", pa.timestamp("ms", tz="UTC")),
        ("key", pa.string()),
        ("payload", pa.binary()),
    ]
)


def write_file(folder: Path, messages: list[LogMessage]) -> Path:
    """Write messages into a file that appears as a whole."""
    rows = [
        {"id": str(message.id), "published": message.publish_ms, "key": message.key, "payload": message.payload}
        for message in messages
    ]
    first = messages[0].id
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{first.ledger_id:012}-{first.entry_id:012}-{max(first.batch_index, 0):06}.parquet"
    temporary = path.with_suffix(".tmp")
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), temporary)
    temporary.rename(path)
    return path


async def next_batch(cursor: LogCursor, count: int, wait_s: float) -> list[LogMessage]:
    """Up to ``count`` messages; fewer if no more come for ``wait_s`` seconds."""
    messages: list[LogMessage] = []
    while len(messages) < count:
        try:
            async with asyncio.timeout(wait_s):
                messages.append(await anext(cursor))
        except TimeoutError:
            break
    return messages


async def follow(
    bk: BookKeeper, log: str, folder: Path, *, count: int = 10_000, wait_s: float = 5.0, files: int | None = None
) -> None:
    """Write files of up to ``count`` messages until cancelled, or until ``files`` are written."""
    async with Logs(bk).cursor(log, "to-parquet") as cursor:
        while files is None or files > 0:
            messages = await next_batch(cursor, count, wait_s)
            if not messages:
                continue
            path = await asyncio.to_thread(write_file, folder, messages)
            cursor.acknowledge_through(messages[-1])
            await cursor.flush()
            print(f"{path.name}: {len(messages)} messages", flush=True)
            files = None if files is None else files - 1


async def main(uri: str, log: str, folder: Path) -> None:
    """Until Ctrl-C."""
    async with bkclient.connect(uri) as bk:
        await follow(bk, log, folder)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))

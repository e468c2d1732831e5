"""``bk log``: publish to logs, read and follow them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import typer

from bkclient import BookKeeper
from bkclient.cli.access import ClusterAccess, connection_for
from bkclient.cli.completion import complete_log
from bkclient.cli.framing import Framing, splitter
from bkclient.cli.help import exit_codes
from bkclient.cli.log_pulsar import read_pulsar
from bkclient.cli.options import (
    AckQuorum,
    ConfigFile,
    Ensemble,
    Json,
    JsonLines,
    Metadata,
    Settings,
    WriteQuorum,
)
from bkclient.cli.output import print_json, print_json_line, print_lines
from bkclient.cli.running import EXIT_INTERRUPTED, Ending, run_with_client
from bkclient.cli.streams import ByteSink, ByteSource
from bkclient.log import LogMessage, Logs, LogSettings, LogWriter, MessageId, NoSuchLog, PublishSettings
from bkclient.log.format.compression import COMPRESSIONS

__all__ = ["NO_LOG", "Compress", "Name", "Start", "StartMs", "add_to", "parsed_start", "run_with_logs"]

NO_LOG: Final = "there is no such log"
_WINDOW: Final = 10_000

Name = Annotated[str, typer.Argument(help="The log.", metavar="LOG", show_default=False, autocompletion=complete_log)]
Start = Annotated[
    list[str] | None,
    typer.Option(
        help="Begin at this message, as ledger:entry:partition:batch; once for each partition. Also: earliest, latest.",
        metavar="ID",
        show_default=False,
    ),
]
StartMs = Annotated[
    int | None,
    typer.Option(
        min=0, help="Begin at the first message published then, in ms since 1970.", metavar="MS", show_default=False
    ),
]
Compress = Annotated[str, typer.Option(help="none, zlib, lz4, zstd or snappy.", metavar="HOW")]
Count = Annotated[int | None, typer.Option(min=0, help="Stop after this many messages.", show_default=False)]


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group ``log``."""
    group.command("create", help=_CREATE_HELP)(create)
    group.command("publish", help=_PUBLISH_HELP)(publish)
    group.command("read", help=_READ_HELP)(read)
    group.command("tail", help=_TAIL_HELP)(tail)


def parsed_start(texts: list[str]) -> list[MessageId]:
    """Where to begin: message ids, ``earliest`` or ``latest``; :class:`~bkclient.errors.ArgumentError` for other texts."""
    ends = {"earliest": MessageId.EARLIEST, "latest": MessageId.LATEST}
    return [ends.get(text) or MessageId.parse(text) for text in texts]


def run_with_logs(
    connection: ClusterAccess,
    work: Callable[[Logs], Awaitable[None]],
    *,
    as_json: bool,
    interrupted: int = EXIT_INTERRUPTED,
) -> None:
    """Run ``work`` with the logs of a cluster; a log that does not exist is a no."""

    async def with_logs(client: BookKeeper) -> None:
        try:
            await work(Logs(client))
        except NoSuchLog as error:
            raise Ending(error.message) from error

    run_with_client(connection, with_logs, as_json=as_json, interrupted=interrupted)


_CREATE_HELP: Final = f"""Create a log.

The other options are kept with the log; every owner follows them. Without --retention-s and --retention-bytes everything is kept.

\b
Examples:
  bk log create orders
  bk log create events --retention-s 604800 --max-entries 10000
  bk log create clicks --partitions 8

\b
{exit_codes(ok="created", refused="a log has the name")}
With --json: {{"log"}}.
"""


def create(
    name: Name,
    *,
    ensemble: Ensemble = 3,
    write_quorum: WriteQuorum = 2,
    ack_quorum: AckQuorum = 2,
    max_entries: Annotated[int, typer.Option(min=1, help="Entries after which a ledger is replaced.")] = 50_000,
    max_bytes: Annotated[int, typer.Option(min=1, help="Bytes after which a ledger is replaced.")] = 2**31,
    partitions: Annotated[int, typer.Option(min=0, help="Partitions; 0 for a log without.")] = 0,
    min_age_s: Annotated[float, typer.Option(min=0, help="But not before this age, in seconds.")] = 600.0,
    max_age_s: Annotated[float, typer.Option(min=0.001, help="Replace it in any case at this age.")] = 14_400.0,
    retention_s: Annotated[
        float | None, typer.Option(min=0, help="Keep messages for so many seconds.", show_default=False)
    ] = None,
    retention_bytes: Annotated[
        int | None, typer.Option(min=0, help="Keep the last so many bytes.", show_default=False)
    ] = None,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Create a log."""
    wanted = {
        "ensemble_size": ensemble,
        "write_quorum_size": write_quorum,
        "ack_quorum_size": ack_quorum,
        "max_ledger_entries": max_entries,
        "max_ledger_bytes": max_bytes,
        "min_ledger_s": min_age_s,
        "max_ledger_s": max_age_s,
        "retention_s": retention_s,
        "retention_bytes": retention_bytes,
    }

    async def work(logs: Logs) -> None:
        await logs.create(name, LogSettings.of(wanted), partitions=partitions)
        if as_json:
            print_json({"log": name})
        else:
            print_lines(f"created log {name}")

    run_with_logs(connection_for(metadata, config, settings), work, as_json=as_json)


_PUBLISH_HELP: Final = f"""Publish each line of standard input to a log.

Takes the log over: an owner that publishes to it at the same time is fenced and fails.

\b
Examples:
  bk log publish orders < lines.txt
  seq 1000 | bk log publish orders
  tail -F app.log | bk log publish events --key host-7 --compression zlib --print-ids

\b
{exit_codes(ok="everything is in the log", no=NO_LOG, refused="another owner took the log over")}
With --json: {{"log", "messages", "epoch"}}; with --print-ids, {{"id"}} for each message before it, one object per line.
"""


def publish(
    name: Name,
    *,
    key: Annotated[str | None, typer.Option(help="The key of all messages.", show_default=False)] = None,
    compression: Compress = "none",
    print_ids: Annotated[bool, typer.Option("--print-ids", help="Print the id of each message.")] = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Publish to a log."""
    connection = connection_for(metadata, config, settings)
    source = ByteSource(typer.get_binary_stream("stdin"))
    if compression not in COMPRESSIONS:
        raise typer.BadParameter(
            f"must be {' or '.join(COMPRESSIONS)}, got {compression!r}", param_hint="--compression"
        )
    how = PublishSettings(compression=compression)

    def show(message_id: MessageId) -> None:
        if as_json:
            print_json_line({"id": str(message_id)})
        else:
            print_lines(str(message_id))

    async def work(logs: Logs) -> None:
        async with logs.writer(name, owner="bk", settings=how) as log:
            count = await _publish_from(source, log, key, show if print_ids else None)
        if as_json:
            (print_json_line if print_ids else print_json)({"log": name, "messages": count, "epoch": log.epoch})
        else:
            typer.echo(f"log {name}: {count} messages", err=print_ids)

    run_with_logs(connection, work, as_json=as_json)


async def _publish_from(
    source: ByteSource, log: LogWriter, key: str | None, show: Callable[[MessageId], None] | None
) -> int:
    """Publish the lines of ``source``; how many."""
    cut = splitter(Framing.LINES, 4 * 1024 * 1024)
    waiting: list[asyncio.Future[MessageId]] = []
    count = 0
    is_at_end = False
    while not is_at_end:
        data = await source.read()
        is_at_end = not data
        for line in cut.feed(data) if data else cut.end():
            waiting.append(log.publish_nowait(line, key=key))
            count += 1
            if len(waiting) >= _WINDOW:
                await _acknowledged(log, waiting, show)
        await _acknowledged(log, waiting, show)
    return count


async def _acknowledged(
    log: LogWriter, waiting: list[asyncio.Future[MessageId]], show: Callable[[MessageId], None] | None
) -> None:
    await log.flush()
    if show is not None:
        for future in waiting:
            show(future.result())
    waiting.clear()


_READ_HELP: Final = f"""Print the messages of a log, up to what is its end now, a line each.

With --pulsar LOG is a topic of Apache Pulsar, or one partition of it, and what its ledgers hold is printed, acknowledged or not,
without a broker; chunks, markers and what is encrypted are told as what they are.

\b
Examples:
  bk log read orders
  bk log read persistent://public/default/orders-partition-0 --pulsar --json
  bk log read orders --start 7:3:-1:-1 --count 10 --json | jq -r .key

\b
{exit_codes(ok="printed", no=NO_LOG, refused="the message was trimmed")}
With --json, one object per line for each message: {{"id", "payload", "key", "headers", "eventMs", "publishMs"}}; payload and
the values of headers are base64. With --pulsar: {{"id", "payload", "key", "properties", "eventMs", "publishMs",
"producer", "sequenceId"}}
and what else there is: brokerMs, index, keyIsBase64, orderingKey, isNull, isCompactedOut, chunk, encryptionKeys, compression,
marker, transaction.
"""


def read(
    name: Name,
    *,
    start: Start = None,
    start_ms: StartMs = None,
    count: Count = None,
    compacted: Annotated[bool, typer.Option("--compacted", help="Begin with what the last compaction left.")] = False,
    pulsar: Annotated[bool, typer.Option("--pulsar", help="LOG is a topic of Apache Pulsar.")] = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """Print the messages of a log."""
    if compacted and start_ms is not None:
        raise typer.BadParameter("--start-ms and --compacted are mutually exclusive", param_hint="--compacted")
    connection = connection_for(metadata, config, settings)
    if pulsar:
        if compacted or start_ms is not None or len(start or ()) > 1:
            raise typer.BadParameter("takes no --compacted, no --start-ms and one --start", param_hint="--pulsar")
        first = MessageId.parse(start[0]) if start else MessageId.EARLIEST
        read_pulsar(name, first, count, connection, as_json=as_json)
        return
    _copy(name, start, start_ms, count, connection, follow=False, as_json=as_json, compacted=compacted)


_TAIL_HELP: Final = f"""Print the messages of a log from now on, as they are published, until Ctrl-C.

With --start or --start-ms it begins there.

\b
Examples:
  bk log tail orders
  bk log tail orders --start 0:0 --json

\b
{exit_codes(ok="ended by Ctrl-C, or --count messages were printed", no=NO_LOG, refused="the message was trimmed")}
With --json, one object per line for each message: {{"id", "payload", "key", "headers", "eventMs", "publishMs"}}; payload and
the values of headers are base64.
"""


def tail(
    name: Name,
    *,
    start: Start = None,
    start_ms: StartMs = None,
    count: Count = None,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """Follow a log."""
    _copy(name, start, start_ms, count, connection_for(metadata, config, settings), follow=True, as_json=as_json)


def _copy(
    name: str,
    start: list[str] | None,
    start_ms: int | None,
    count: int | None,
    connection: ClusterAccess,
    *,
    follow: bool,
    as_json: bool,
    compacted: bool = False,
) -> None:
    if start and start_ms is not None:
        raise typer.BadParameter("--start and --start-ms are mutually exclusive", param_hint="--start-ms")
    earliest = MessageId.LATEST if follow and start_ms is None else MessageId.EARLIEST
    sink = ByteSink(typer.get_binary_stream("stdout"))

    async def work(logs: Logs) -> None:
        first = parsed_start(start) if start else earliest
        done = 0
        async with logs.reader(name, first, start_ms=start_ms, follow=follow, compacted=compacted) as reader:
            while count is None or done < count:
                try:
                    message = await anext(reader)
                except StopAsyncIteration:
                    break
                sink.write(_as_json(message) if as_json else message.payload + b"\n")
                done += 1
                if follow or sink.is_full:
                    await sink.drain()
        await sink.drain()

    run_with_logs(connection, work, as_json=as_json, interrupted=0 if follow else EXIT_INTERRUPTED)


def _as_json(message: LogMessage) -> bytes:
    value = {
        "id": str(message.id),
        "payload": base64.b64encode(message.payload).decode(),
        "key": message.key,
        "headers": {name: base64.b64encode(value).decode() for name, value in message.headers.items()},
        "eventMs": message.event_ms,
        "publishMs": message.publish_ms,
    }
    return json.dumps(value).encode() + b"\n"

"""``bk ledger append``, ``read`` and ``tail``: entries from standard input and to standard output."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer

from bkclient import AppendFuture, BookKeeper, LedgerReader, LedgerWriter
from bkclient.cli.access import connection_for, pairs, password_from
from bkclient.cli.framing import Framing, OutputFormat, Splitter, formatter, splitter
from bkclient.cli.help import NO_LEDGER, WRONG_PASSWORD, exit_codes
from bkclient.cli.options import (
    AckQuorum,
    AskPassword,
    ConfigFile,
    Custom,
    DeferredSync,
    Digest,
    Ensemble,
    Json,
    JsonLines,
    LedgerId,
    Metadata,
    NewLedgerId,
    PasswordFile,
    Settings,
    WriteQuorum,
)
from bkclient.cli.output import Move, print_json, print_json_line, watched
from bkclient.cli.running import EXIT_INTERRUPTED, run_with_client
from bkclient.cli.streams import ByteSink, ByteSource
from bkclient.config.keys import DIGEST_TYPES
from bkclient.errors import ArgumentError, BookKeeperError, NoSuchEntry

__all__ = ["add_to", "append_from", "copy_entries", "follow", "new_ledger"]


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group ``ledger``."""
    group.command("append", help=_APPEND_HELP)(append)
    group.command("read", help=_READ_HELP)(read)
    group.command("tail", help=_TAIL_HELP)(tail)


def new_ledger(
    ensemble: int, write_quorum: int, ack_quorum: int, digest: str, custom: list[str] | None
) -> dict[str, Any]:
    """What the options that ``create`` and ``append`` share say about a new ledger, as arguments of ``create_ledger``."""
    digest_type = DIGEST_TYPES.get("mac" if digest.lower() == "hmac" else digest.lower())
    if digest_type is None:
        raise typer.BadParameter(f"must be {' or '.join(sorted(DIGEST_TYPES))}, got {digest!r}", param_hint="--digest")
    return {
        "ensemble_size": ensemble,
        "write_quorum_size": write_quorum,
        "ack_quorum_size": ack_quorum,
        "digest_type": digest_type,
        "custom_metadata": {key: value.encode() for key, value in pairs(custom, "--custom").items()},
    }


# Appending ---------------------------------------------------------------------------------------------------------


_APPEND_HELP: Final = f"""Create a ledger, append standard input to it, and close it.

Each line is an entry, unless --length-prefixed or --whole is given. Many entries are in flight at a time.
Ctrl-C closes the ledger after the last confirmed entry.

Only the creator of a ledger can write to it: an existing ledger cannot be appended to, and LEDGER is the id of the new one.

\b
Examples:
  seq 1000 | bk ledger append --create
  bk ledger append --create --whole --ledger-id 12 < picture.png
  tail -F app.log | bk ledger append --create --print-ids --ensemble 3 --write-quorum 3 --ack-quorum 2

\b
{exit_codes(ok="everything is in the ledger", refused="the ledger exists, or another client took it over")}
With --json: {{"ledgerId", "entries", "bytes", "lastEntryId"}}; with --print-ids, {{"entryId"}} for each entry before it, one
object per line.
"""


def append(
    ledger: Annotated[
        int | None,
        typer.Argument(help="The id of the new ledger, as --ledger-id.", metavar="LEDGER", min=0, show_default=False),
    ] = None,
    *,
    create: Annotated[bool, typer.Option("--create", help="Create the ledger. Required.")] = False,
    length_prefixed: Annotated[
        bool,
        typer.Option(
            "--length-prefixed", help="Each entry follows its size, four bytes big endian, instead of being a line."
        ),
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="The whole input is one entry.")] = False,
    print_ids: Annotated[
        bool, typer.Option("--print-ids", help="Print the id of each entry once it is confirmed.")
    ] = False,
    ensemble: Ensemble = 3,
    write_quorum: WriteQuorum = 2,
    ack_quorum: AckQuorum = 2,
    digest: Digest = "crc32c",
    custom: Custom = None,
    deferred_sync: DeferredSync = False,
    ledger_id: NewLedgerId = None,
    password_file: PasswordFile = None,
    ask_password: AskPassword = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Create a ledger from standard input."""
    new_id = ledger if ledger_id is None else ledger_id
    if not create:
        which = "a ledger that exists" if ledger is None else f"ledger {ledger}"
        raise typer.BadParameter(
            f"required: only the creator of a ledger can write to it, so {which} cannot be appended to",
            param_hint="--create",
        )
    if None not in {ledger, ledger_id} and ledger != ledger_id:
        raise typer.BadParameter("LEDGER and --ledger-id must be equal if both are given", param_hint="--ledger-id")
    if length_prefixed and whole:
        raise typer.BadParameter("--length-prefixed and --whole are mutually exclusive", param_hint="--whole")
    framing = Framing.LENGTH_PREFIXED if length_prefixed else Framing.WHOLE if whole else Framing.LINES
    new = new_ledger(ensemble, write_quorum, ack_quorum, digest, custom)
    connection = connection_for(metadata, config, settings)
    password = password_from(password_file, ask=ask_password, is_new=True)
    source = ByteSource(typer.get_binary_stream("stdin"))
    sink = ByteSink(typer.get_binary_stream("stdout"))

    facts: dict[str, Any] = {}

    async def work(client: BookKeeper) -> None:
        writer = await client.create_ledger(**new, ledger_id=new_id, password=password, deferred_sync=deferred_sync)
        ids = Ids(sink, as_json=as_json) if print_ids else None
        if source.is_terminal:
            typer.echo("bk: reading from the terminal; Ctrl-D ends the ledger", err=True)
        with watched("appending", source.size_bytes, is_bytes=True, is_printing=print_ids) as move:
            cut = splitter(framing, connection.config.limits.max_frame_size_bytes)
            try:
                await append_from(source, writer, cut, ids, move, is_deferred=deferred_sync)
            finally:
                facts.update(_end_of(writer))
        if as_json:
            (print_json_line if print_ids else print_json)(facts)
        else:
            line = "ledger {ledgerId}: {entries} entries, {bytes} bytes, last entry {lastEntryId}".format_map(facts)
            typer.echo(line, err=print_ids)

    run_with_client(connection, work, as_json=as_json, done=facts)


def _end_of(writer: LedgerWriter) -> dict[str, Any]:
    """What is in the ledger; of one that could not be closed, what was confirmed, and an unknown size."""
    end = writer.metadata
    last = end.last_entry_id if end.is_closed else writer.last_add_confirmed
    return {
        "ledgerId": end.ledger_id,
        "entries": last + 1,
        "bytes": end.length if end.is_closed else None,
        "lastEntryId": last,
    }


@dataclass
class Ids:
    """Prints the ids of confirmed entries, in order, as they are confirmed."""

    sink: ByteSink
    as_json: bool
    _printing: asyncio.Task[None] | None = field(default=None, init=False)

    def confirmed(self, appended: AppendFuture) -> None:
        """Take note of an append that ended."""
        if appended.cancelled() or appended.exception() is not None:
            return
        entry_id = appended.result()
        line = json.dumps({"entryId": entry_id}) if self.as_json else str(entry_id)
        self.sink.write(line.encode() + b"\n")
        if self._printing is None or self._printing.done():
            self._printing = asyncio.ensure_future(self._print())

    async def _print(self) -> None:
        # More may be confirmed while what was confirmed before is on its way.
        while self.sink.is_waiting:
            await self.sink.drain()

    async def finish(self) -> None:
        """Wait until everything is printed; raises what kept it from being printed."""
        await asyncio.sleep(0)  # appends that are confirmed may not have called back yet
        if self._printing is not None:
            await self._printing
        await self.sink.drain()

    async def keep_up(self) -> None:
        """Wait while more is to be printed than should wait, and notice that the reader has gone."""
        if self._printing is not None and (self.sink.is_full or self._printing.done()):
            await self._printing


async def append_from(
    source: ByteSource,
    writer: LedgerWriter,
    cut: Splitter,
    ids: Ids | None = None,
    move: Move = lambda _: None,
    *,
    is_deferred: bool = False,
) -> None:
    """Append all of ``source`` to ``writer`` and close its ledger, whatever happens, after the last confirmed entry.

    If it is interrupted, standard error tells what the ledger holds.
    """
    done_bytes = 0
    try:
        async with writer:
            try:
                while data := await source.read():
                    for payload in cut.feed(data):
                        await _append(writer, payload, ids)
                    done_bytes += len(data)
                    move(done_bytes)
                    if ids is not None:
                        await ids.keep_up()
                for payload in cut.end():
                    await _append(writer, payload, ids)
            except ArgumentError:
                # What came before the input that cannot be used is as good as any other.
                await writer.flush()
                if is_deferred:
                    await writer.force()
                raise
            await writer.flush()
            if ids is not None:
                await ids.finish()
    except (asyncio.CancelledError, BookKeeperError, BrokenPipeError):
        state = "is closed" if writer.metadata.is_closed else "may still be open"
        typer.echo(
            f"bk: not everything was appended: ledger {writer.ledger_id} {state}, last entry {writer.last_add_confirmed}",
            err=True,
        )
        raise


async def _append(writer: LedgerWriter, payload: bytes, ids: Ids | None) -> None:
    appended = await writer.submit(payload)
    if ids is not None:
        appended.add_done_callback(ids.confirmed)


# Reading -----------------------------------------------------------------------------------------------------------

Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format of entries.")]


_READ_HELP: Final = f"""Print entries of a ledger.

The confirmed entries of an open ledger are read, and its writer is not disturbed. --recover takes the ledger over first: its
writer can append no more, and the ledger is closed.

\b
Examples:
  bk ledger read 7
  bk ledger read 7 --first 100 --last 199 --output hex
  bk ledger read 7 --output raw > picture.png
  bk ledger read 7 --output length-prefixed | bk ledger append --create --length-prefixed

\b
{exit_codes(ok="printed", no="there is no such ledger or entry", refused="wrong password, or every copy is corrupt")}
With --json (or --output json), one object per line for each entry: {{"ledgerId", "entryId", "length", "lastAddConfirmed",
"payload"}}; payload is base64; length counts the bytes of the ledger up to and including the entry.
"""


def read(
    ledger: LedgerId,
    *,
    first: Annotated[int, typer.Option(min=0, help="The first entry.", metavar="ENTRY")] = 0,
    last: Annotated[
        int | None,
        typer.Option(
            min=0, help="The last entry.  [default: the last one confirmed]", metavar="ENTRY", show_default=False
        ),
    ] = None,
    output: Output = OutputFormat.LINES,
    recover: Annotated[
        bool, typer.Option("--recover/--no-recover", help="Take the ledger over from its writer and close it first.")
    ] = False,
    password_file: PasswordFile = None,
    ask_password: AskPassword = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """Print entries of a ledger."""
    connection = connection_for(metadata, config, settings)
    password = password_from(password_file, ask=ask_password)
    format_ = OutputFormat.JSON if as_json else output
    sink = ByteSink(typer.get_binary_stream("stdout"))

    async def work(client: BookKeeper) -> None:
        async with await client.open_ledger(ledger, password=password, recover=recover) as reader:
            end = reader.last_add_confirmed if last is None else last
            if end > reader.last_add_confirmed or (first > end and (first, last) != (0, None)):
                raise NoSuchEntry(
                    f"its last confirmed entry is {reader.last_add_confirmed}",
                    ledger_id=ledger,
                    entry_id=max(first, end),
                )
            with watched("reading", max(0, end - first + 1)) as move:
                await copy_entries(reader, first, end, sink, format_, move)

    run_with_client(connection, work, as_json=format_ is OutputFormat.JSON)


_TAIL_HELP: Final = f"""Print the entries of a ledger as they are confirmed, until it is closed or Ctrl-C.

The writer is not disturbed. The last entry before a pause of the writer shows up when the writer sends an explicit LAC, appends
the next entry, or closes the ledger.

\b
Examples:
  bk ledger tail 7
  bk ledger tail 7 --new --json
  bk ledger tail 7 --until-closed > copy.txt

\b
{exit_codes(ok="the ledger is closed and everything printed, or Ctrl-C", no=NO_LEDGER, refused=WRONG_PASSWORD)}
With --until-closed, Ctrl-C is 130, so 0 means that nothing is missing.
With --json: as read.
"""


def tail(
    ledger: LedgerId,
    *,
    first: Annotated[int, typer.Option(min=0, help="The first entry.", metavar="ENTRY")] = 0,
    new: Annotated[bool, typer.Option("--new", help="Start with the next entry that is confirmed.")] = False,
    until_closed: Annotated[
        bool, typer.Option("--until-closed", help="Exit with 0 only if the ledger was closed.")
    ] = False,
    output: Output = OutputFormat.LINES,
    patience: Annotated[
        float,
        typer.Option(min=0, help="Give up after this many seconds of consecutive bookie errors.", metavar="SECONDS"),
    ] = 60.0,
    password_file: PasswordFile = None,
    ask_password: AskPassword = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """Print entries as they are confirmed."""
    connection = connection_for(metadata, config, settings)
    password = password_from(password_file, ask=ask_password)
    format_ = OutputFormat.JSON if as_json else output
    sink = ByteSink(typer.get_binary_stream("stdout"))

    async def work(client: BookKeeper) -> None:
        async with await client.open_ledger(ledger, password=password) as reader:
            start = reader.last_add_confirmed + 1 if new else first
            await follow(reader, start, sink, format_, patience)

    run_with_client(
        connection, work, as_json=format_ is OutputFormat.JSON, interrupted=EXIT_INTERRUPTED if until_closed else 0
    )


async def copy_entries(
    reader: LedgerReader, first: int, last: int, sink: ByteSink, output: OutputFormat, move: Move = lambda _: None
) -> None:
    """Write the entries ``first`` to ``last`` to ``sink``; what was read before an error is written too."""
    if first > last:
        return
    write = formatter(output)
    done = 0
    try:
        async for entry in reader.read_range(first, last):
            sink.write(write(entry))
            done += 1
            if sink.is_full:
                await sink.drain()
                move(done)
    except BookKeeperError:
        await sink.drain()
        raise
    await sink.drain()
    move(done)


async def follow(reader: LedgerReader, first: int, sink: ByteSink, output: OutputFormat, patience_s: float) -> None:
    """Write the entries from ``first`` on to ``sink``, as they are confirmed; returns when the ledger is closed.

    Gives up with the error of the bookies when they gave nothing but errors for ``patience_s`` seconds.
    """
    write = formatter(output)
    async with reader.tail(first, patience_s=patience_s) as tail_:
        async for entry in tail_:
            sink.write(write(entry))
            # What is there is passed on in large pieces, and the newest entry at once.
            if sink.is_full or entry.entry_id >= reader.last_add_confirmed:
                await sink.drain()
    await sink.drain()

"""A takeover on real parts: ZooKeeper, bookies in processes of their own, TCP, SIGKILL.

A first client streams a file into a ledger, line by line. Half-way one of its bookies is killed, and the writer replaces it. At
the end of the file the writer pauses without closing, as a hung process would. A second client takes the ledger over: it fences
the bookies, finds the end, closes the ledger. The first writer's next append is refused. What the second client reads is
compared with the file, byte for byte.

    python examples/takeover.py README.md
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import bkclient
from bkclient.errors import BookKeeperError, LedgerFenced
from simbookie.processes import ProcessCluster
from simbookie.zookeeper import ZooKeeperServer

BOOKIES = 4
ENSEMBLE_SIZE = 3
WRITE_QUORUM = 3
ACK_QUORUM = 2


@dataclass(frozen=True, slots=True)
class Takeover:
    """What came of it."""

    ledger_id: int
    entries: int
    payload_bytes: int
    fragments: int
    refusal: str
    is_identical: bool


def progress_on(console: Console) -> Progress:
    """A progress display with counts and time."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


async def stream_lines(
    writer: bkclient.LedgerWriter, lines: Sequence[bytes], cluster: ProcessCluster, console: Console
) -> None:
    """Append every line, many in flight; kill a bookie of the ensemble in the middle."""
    victim = writer.metadata.last_fragment.ensemble[0]
    with progress_on(console) as progress:
        task = progress.add_task("   entries appended", total=len(lines))
        for number, line in enumerate(lines):
            if number == len(lines) // 2:
                if writer.last_add_confirmed < number // 2:
                    await writer.flush()  # a short file may still be on its way as a whole
                console.print(f"   entry {number}: [red]SIGKILL[/red] to bookie {victim}")
                await asyncio.to_thread(cluster.bookie(victim).kill)
            is_waiting_for_change = number >= len(lines) // 2 and len(writer.metadata.fragments) == 1
            if is_waiting_for_change:
                await writer.append(line)  # one by one, until the writer has noticed
            else:
                await writer.submit(line)
            progress.update(task, completed=writer.last_add_confirmed + 1)
        await writer.flush()
    for fragment in writer.metadata.fragments:
        console.print(f"   entries from {fragment.first_entry_id:>6}: {', '.join(fragment.ensemble)}")


async def read_back(reader: bkclient.LedgerReader, console: Console) -> list[bytes]:
    """Every entry of the ledger, in order."""
    payloads = []
    with progress_on(console) as progress:
        task = progress.add_task("   entries read", total=reader.last_add_confirmed + 1)
        async for entry in reader:
            payloads.append(entry.payload)
            progress.advance(task)
    return payloads


async def take_over(content: bytes, console: Console) -> Takeover:
    """The whole story, on a ZooKeeper and bookies started for it."""
    lines = content.splitlines(keepends=True)
    console.print("   starting ZooKeeper ...")
    async with ZooKeeperServer() as zookeeper:
        uri = zookeeper.metadata_uri()
        console.print(f"   ZooKeeper listens at {zookeeper.address}; starting {BOOKIES} bookie processes ...")
        async with (
            ProcessCluster(uri, BOOKIES) as cluster,
            bkclient.connect(uri) as first,
            bkclient.connect(uri) as second,
        ):
            registered = await first.bookies()
            console.print(f"   registered in ZooKeeper: {', '.join(registered.writable)}")
            console.rule("Write a ledger while a bookie dies", align="left")
            writer = await first.create_ledger(
                ensemble_size=ENSEMBLE_SIZE, write_quorum_size=WRITE_QUORUM, ack_quorum_size=ACK_QUORUM
            )
            console.print(
                f"   ledger {writer.ledger_id}: {len(lines)} lines, every entry on {WRITE_QUORUM} bookies, "
                f"acknowledged by {ACK_QUORUM}"
            )
            await stream_lines(writer, lines, cluster, console)
            console.rule("Take the ledger over from a writer that pauses", align="left")
            reader = await second.open_ledger(writer.ledger_id, recover=True)
            console.print(
                f"   the second client fenced and closed it: last entry {reader.last_add_confirmed}, {reader.length} bytes"
            )
            refusal = "the first writer was NOT refused"
            try:
                await writer.append(b"I am still here\n")
            except LedgerFenced as error:
                refusal = f"LedgerFenced: {error}"
            except BookKeeperError as error:
                refusal = f"{type(error).__name__}: {error}"
            console.print(f"   the first writer appends again: [yellow]{refusal}[/yellow]")
            payloads = await read_back(reader, console)
            is_identical = b"".join(payloads) == content
            console.print(
                f"   read back {len(payloads)} entries: {'identical to the file' if is_identical else 'DIFFERENT'}"
            )
            return Takeover(
                writer.ledger_id, len(payloads), reader.length, len(reader.metadata.fragments), refusal, is_identical
            )


def main() -> int:
    """Take over a ledger that holds the file named on the command line."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    result = asyncio.run(take_over(Path(sys.argv[1]).read_bytes(), Console()))
    return 0 if result.is_identical and result.refusal.startswith("LedgerFenced") else 1


if __name__ == "__main__":
    raise SystemExit(main())

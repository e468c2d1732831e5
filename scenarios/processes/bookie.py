"""A bookie process of a run: ``python -m scenarios.processes.bookie``, started by the director.

It is the bookie of ``bk-sim bookie --data``, and records what happens inside it in a file of its own, each event before anything
that depends on it. After a SIGKILL the next one on the same data says what the kill destroyed: entries that were stored and had
not reached the operating system.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bkclient.ledger import DigestType
from scenarios.history import History, HistoryWriter, Kind
from scenarios.processes.channel import Channel, clock_since
from scenarios.recording.recorders import BookieRecorder, Recorder
from simbookie.bookie import Bookie
from simbookie.server import BookieServer
from simbookie.serving import BookieOptions, Watching, serve_bookie
from simbookie.storage.data_folder import DataPlaces

__all__ = ["main"]


def main() -> None:
    """Serve until the director ends this process."""
    logging.basicConfig(level=logging.WARNING)
    channel = Channel()
    task = channel.task
    history = HistoryWriter(
        {"part": task["name"]}, clock_since(task["started_ns"]), Path(task["file"]), writes_through=True
    )
    channel.watch(history)
    try:
        asyncio.run(_serve(channel, history))
    except Exception as error:
        channel.tell("failed", f"{type(error).__name__}: {error}")
        logging.getLogger(__name__).exception("the bookie ended")
        sys.exit(1)
    history.close()


async def _serve(channel: Channel, history: HistoryWriter) -> None:
    task = channel.task
    name, digest = task["name"], task["digest"]
    recorder = Recorder(history, DigestType[digest] if digest else None)
    observer = BookieRecorder(recorder, name)

    def before_serving(bookie: Bookie) -> None:
        """Say what became of what the lives before had."""
        if task["lives"]:
            ledgers = bookie.storage.ledger_ids()
            for ledger_id, entry_id in sorted(_stored_in(map(Path, task["lives"]))):
                if ledger_id not in ledgers or entry_id not in bookie.storage.entry_ids(ledger_id):
                    observer.entry_lost(ledger_id, entry_id, "not written before the kill")
            observer.restarted(len(task["lives"]) + 1, f"{len(ledgers)} ledgers restored")

    options = BookieOptions(
        metadata_uri=task["metadata"],
        port=task["port"],
        bookie_id=name,
        session_timeout_s=task["session_timeout_s"],
        data=DataPlaces.inside(Path(task["data"])),
    )
    requests = recorder.requests_at(name)

    def ready(server: BookieServer, _admin_port: int | None) -> None:
        channel.tell("ready", server.port)

    channel.listen()
    await serve_bookie(options, ready, Watching(observer, requests, before_serving))


def _stored_in(lives: Iterable[Path]) -> set[tuple[int, int]]:
    """The entries that the bookie had when it was killed last, as it told."""
    stored: set[tuple[int, int]] = set()
    for path in lives:
        for event in History(path, may_be_cut=True).events():
            fields: Any = event.fields
            if event.kind == Kind.BK_STORE:
                stored.add((event.ledger, fields["entry"]))
            elif event.kind == Kind.BK_LOSS:
                stored.discard((event.ledger, fields["entry"]))
            elif event.kind == Kind.BK_GC:
                stored = {entry for entry in stored if entry[0] != event.ledger}
    return stored


if __name__ == "__main__":
    main()

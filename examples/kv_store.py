"""A key-value store that survives kill -9: its changes are a replicated log, and of several processes one serves.

Start any number of these; one of them serves, and says so. Kill it, and another one goes on with all that was acknowledged:

    python examples/kv_store.py zk://127.0.0.1:2181/ledgers 7001
    python examples/kv_store.py zk://127.0.0.1:2181/ledgers 7002

    $ nc 127.0.0.1 7001
    set colour blue
    ok
    get colour
    blue
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self

import bkclient
from bkclient import BookKeeper, ClientConfig, TimeoutSettings
from bkclient.coordination import LeaderElection
from bkclient.errors import BookKeeperError
from bkclient.log import LogExists, Logs, LogWriter


class KeyValueStore:
    """Keys and values, whose changes are in a log; for one process at a time, and the last one to enter its block has it.

    A change is made here once it is in the log, so nobody reads what may yet be lost. A call that raises may have been made or
    not, and the process has to start anew then, as after a crash.
    """

    def __init__(self, bk: BookKeeper, name: str) -> None:
        self._logs = Logs(bk)
        self._name = name
        self._log: LogWriter | None = None
        self._values: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        with suppress(LogExists):
            await self._logs.create(self._name)
        self._log = self._logs.writer(self._name)
        await self._log.__aenter__()  # from now on no other process can change anything, so the log has an end
        async with self._logs.reader(self._name, follow=False) as messages:
            async for message in messages:
                self._apply(message.payload)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._log is not None, "entered before left"
        await self._log.__aexit__(kind, error, trace)

    def get(self, key: str) -> str | None:
        """The value of ``key``, None if it has none."""
        return self._values.get(key)

    async def put(self, key: str, value: str | None) -> None:
        """Give ``key`` a value, or take it away; stored by a quorum of bookies when this returns."""
        assert self._log is not None, "used inside its block"
        change = json.dumps([key, value]).encode()
        await self._log.publish(change, key=key)
        self._apply(change)

    def _apply(self, change: bytes) -> None:
        key, value = json.loads(change)
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value


async def answer(store: KeyValueStore, words: list[str]) -> str:
    """Carry out one command."""
    match words:
        case ["get", key]:
            return store.get(key) or ""
        case ["set", key, value]:
            await store.put(key, value)
            return "ok"
        case ["delete", key]:
            await store.put(key, None)
            return "ok"
    return "commands are: get KEY, set KEY VALUE, delete KEY"


async def serve(uri: str, port: int) -> None:
    """Wait until elected, then serve until the leadership is lost."""
    # Where a process died, its session with the metadata service has to end before another one is elected.
    config = ClientConfig(timeouts=TimeoutSettings(metadata_session_s=4.0))
    async with (
        bkclient.connect(uri, config=config) as bk,
        LeaderElection(bk, "kv-store", f"port {port}") as election,
        KeyValueStore(bk, "kv-store") as store,
    ):
        failed = asyncio.Event()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while line := await reader.readline():
                    writer.write((await answer(store, line.decode().split()) + "\n").encode())
                    await writer.drain()
            except BookKeeperError as error:
                print(f"cannot go on: {error}", file=sys.stderr)
                failed.set()
            finally:
                writer.close()

        async with await asyncio.start_server(talk, "127.0.0.1", port):
            print(f"serving on port {port}", flush=True)
            ends = [asyncio.create_task(failed.wait()), asyncio.create_task(election.until_deposed())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))

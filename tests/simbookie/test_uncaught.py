"""A bookie whose storage fails in a way that it does not know ends at once, and the next one has everything."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bkclient.wire.messages import AddRequest, ReadRequest, Status
from simbookie.storage.base import StorageIOError
from simbookie.uncaught import end_on_defects_of_storage
from tests.simbookie.test_server import Client

FAILING = """
from simbookie.cli import main
from simbookie.storage.entry_logs.log import WritableLog

def failing(self, ledger_id, entry):
    raise RuntimeError("planted")

if {is_planted}:
    WritableLog.append = failing
main()
"""


def raising(error: Exception, module: str) -> Any:
    """A function of a module that raises an error."""
    scope: dict[str, Any] = {"__name__": module, "error": error}
    exec("def fail():\n    raise error", scope)
    return scope["fail"]


@pytest.mark.parametrize(
    ("error", "module", "ends"),
    [
        (RuntimeError("a defect"), "simbookie.storage.db.shard", True),
        (RuntimeError("a defect"), "simbookie.tcp.connection", False),
        (StorageIOError("a disk"), "simbookie.storage.db.shard", False),
    ],
)
def test_what_ends_a_bookie(error: Exception, module: str, ends: bool, caplog: pytest.LogCaptureFixture) -> None:
    statuses: list[int] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        end_on_defects_of_storage(loop, statuses.append)
        loop.call_soon(raising(error, module))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(story())
    assert statuses == ([1] if ends else [])
    assert ("RuntimeError: a defect" in caplog.text) == isinstance(error, RuntimeError), (
        "the error that happened is told"
    )
    assert ("the bookie ends" in caplog.text) == ends


async def bookie(folder: Path, *, is_planted: bool) -> tuple[asyncio.subprocess.Process, Client]:
    conf = folder / "bk_server.conf"
    conf.write_text("flushInterval=100\n")
    options = [
        "--metadata",
        "mem://alone",
        "--data",
        str(folder / "data"),
        "--storage",
        "db",
        "--conf",
        str(conf),
        "--id",
        "b0",
    ]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FAILING.format(is_planted=is_planted), "bookie", *options, "--port", "0", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    port = json.loads(await process.stdout.readline())["listening_port"]
    return process, Client(*await asyncio.open_connection("127.0.0.1", port), 3)


async def test_a_bookie_ends_at_a_defect_of_its_storage_and_the_next_one_has_what_it_acknowledged(
    kit: Any, tmp_path: Path
) -> None:
    pytest.importorskip("rocksdict")
    failing, client = await bookie(tmp_path, is_planted=True)
    add: AddRequest = kit.add(1, 0, payload=b"kept")
    assert await client.status(add) is Status.OK, "it is in the journal"
    _, told = await failing.communicate()
    assert failing.returncode == 1
    assert b"RuntimeError: planted" in told
    assert b"replays its journal" in told
    await client.close()
    working, client = await bookie(tmp_path, is_planted=False)
    try:
        assert await client.status(ReadRequest(1, 0)) is Status.OK
        await client.close()
    finally:
        working.terminate()
        await working.communicate()

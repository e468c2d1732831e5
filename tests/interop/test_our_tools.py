"""``bk`` as a process, on real bookies and on ledgers that Java wrote."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.conftest import PeerFactory
from tests.interop.java_peer import JavaError, JavaPeer, pattern
from tests.interop.real_bookie import RealCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PATTERNS = [pattern(entry_id) for entry_id in range(50)]
SIZES = {"ensemble": 3, "write_quorum": 2, "ack_quorum": 2}
PATIENCE_S = 60


class Bk:
    """The command line on one cluster, over one version of the wire protocol. Settings are told by BookKeeper's own keys."""

    def __init__(self, metadata_uri: str, wire: int) -> None:
        self._options = ["--metadata", metadata_uri, "-c", f"useV2WireProtocol={str(wire == 2).lower()}"]

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "bkclient.cli", *arguments, *self._options]

    async def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> bytes:
        """What it printed; its exit code has to be ``code``."""
        run = subprocess.run
        done = await asyncio.to_thread(
            run, self._command(arguments), input=stdin, capture_output=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == code, done.stderr.decode()
        return done.stdout

    async def json(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> Any:
        """The one object that it printed."""
        return json.loads(await self(*arguments, "--json", stdin=stdin, code=code))

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The command while the block lasts."""
        process = await asyncio.create_subprocess_exec(*self._command(arguments), stdout=asyncio.subprocess.PIPE)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.fixture
def bk(real: RealCluster, wire: int) -> Bk:
    return Bk(real.metadata_uri, wire)


def prefixed(payloads: list[bytes]) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


async def of_java(java: JavaPeer, *, close: bool = True, **options: Any) -> int:
    """A ledger of Java's with all patterns."""
    ledger_id: int = (await java("create", **SIZES, **options))["ledger"]
    await java("append", ledger_id, count=len(PATTERNS))
    if close:
        await java("close", ledger_id)
    return ledger_id


@pytest.mark.matrix("append: read by Java")
async def test_java_reads_what_was_piped_in(bk: Bk, java: JavaPeer, scratch: Path) -> None:
    secret = scratch / "password"
    secret.write_bytes(b"secret\n")
    options = ("--digest", "mac", "--password-file", str(secret), "--custom", "made-by=a shell")

    told = await bk.json("ledger", "append", "--create", "--length-prefixed", *options, stdin=prefixed(PATTERNS))

    ledger_id = told.pop("ledgerId")
    assert told == {"entries": 50, "bytes": sum(map(len, PATTERNS)), "lastEntryId": 49}
    await java("open", ledger_id, digest="MAC", password=b"secret")
    assert await java.payloads(ledger_id) == PATTERNS


@pytest.mark.matrix("read, info, list and delete, of Java's ledgers")
async def test_a_closed_ledger_of_java_s(bk: Bk, java: JavaPeer) -> None:
    ledger_id = await of_java(java)
    name = str(ledger_id)

    assert await bk("ledger", "read", name, "--output", "length-prefixed") == prefixed(PATTERNS)
    info = await bk.json("ledger", "info", name)
    facts = await java("info", ledger_id)
    assert (info["state"], info["lastEntryId"], info["length"]) == ("CLOSED", 49, sum(map(len, PATTERNS)))
    assert {first: list(bookies) for first, bookies in info["allEnsembles"].items()} == facts["fragments"]
    lines = (await bk("ledger", "list", "--long", "--json")).splitlines()
    listed = {each["ledgerId"]: each for each in map(json.loads, lines)}
    assert listed[ledger_id]["length"] == info["length"]

    assert await bk.json("ledger", "delete", "--force", name) == {"deleted": [ledger_id]}
    with pytest.raises(JavaError) as caught:
        await java("open", ledger_id)
    assert caught.value.name == "BKNoSuchLedgerExistsOnMetadataServerException"
    refusal = await bk.json("ledger", "read", name, code=1)
    assert refusal["error"]["type"] == "NoSuchLedger"


@pytest.mark.matrix("tail follows Java's writer to its end")
async def test_a_tail_ends_with_the_ledger(bk: Bk, java: JavaPeer) -> None:
    ledger_id: int = (await java("create", **SIZES))["ledger"]
    await java("append", ledger_id, count=1)
    await java("append", ledger_id, count=1)  # which tells that the first is confirmed
    command = ("ledger", "tail", str(ledger_id), "--until-closed", "--output", "json")

    async with bk.running(*command) as process, asyncio.timeout(PATIENCE_S):
        assert process.stdout is not None
        first = json.loads(await process.stdout.readline())
        assert first["entryId"] == 0, "told while the ledger is being written"
        await java("append", ledger_id, count=28, pause_ms=5)
        await java("close", ledger_id)
        rest = [json.loads(line) async for line in process.stdout]
        assert await process.wait() == 0
    assert [each["entryId"] for each in rest] == list(range(1, 30))
    assert rest[-1]["length"] == sum(map(len, PATTERNS[:30]))


@pytest.mark.matrix("recover fences Java's writer")
async def test_recover_takes_over_from_java(bk: Bk, java: JavaPeer) -> None:
    ledger_id = await of_java(java, close=False)

    told = await bk.json("ledger", "recover", str(ledger_id))

    assert (told["state"], told["lastEntryId"], told["wasClosed"]) == ("CLOSED", 49, False)
    with pytest.raises(JavaError) as caught:
        await java("append", ledger_id, count=1)
    assert caught.value.name == "BKLedgerFencedException"


@pytest.mark.matrix("bookies")
async def test_bookies_lists_those_that_run(bk: Bk, real: RealCluster) -> None:
    listed = await bk.json("bookies")

    assert sorted(listed["writable"]) == sorted(bookie.bookie_id for bookie in real.bookies)


@pytest.mark.matrix("check and repair Java's ledger after SIGKILL of a bookie")
async def test_check_and_repair(mortal: RealCluster, new_peer: PeerFactory, wire: int) -> None:
    java, bk = new_peer(mortal.metadata_uri, wire), Bk(mortal.metadata_uri, wire)
    ledger_id = await of_java(java)
    sound = await bk.json("ledger", "check", "--thorough", str(ledger_id))
    assert sound["sound"]
    assert sound["copiesChecked"] == 2 * len(PATTERNS)
    victim = (await java("info", ledger_id))["fragments"]["0"][0]
    mortal.bookie(victim).kill()

    unsound = await bk.json("ledger", "check", "--thorough", str(ledger_id), code=1)
    assert {bad["bookieId"] for fragment in unsound["fragments"] for bad in fragment["bad"]} == {victim}
    await asyncio.to_thread(mortal.wait_unregistered, victim)
    repaired = await bk.json("repair", "ledger", str(ledger_id))

    assert repaired["sound"]
    reader = new_peer(mortal.metadata_uri, wire, own=True)
    await reader("open", ledger_id)
    assert await reader.payloads(ledger_id) == PATTERNS
    assert victim not in (await reader("info", ledger_id))["fragments"]["0"]

"""BookKeeper's own shell and daemons on ledgers that Python wrote."""

from __future__ import annotations

import asyncio
import re
import subprocess

import pytest

from bkclient import BookKeeper
from tests.interop.builds import Build
from tests.interop.conftest import ClientFactory
from tests.interop.java_peer import pattern
from tests.interop.real_bookie import RealCluster
from tests.interop.test_python_client import payloads_of, written

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


@pytest.fixture
def wire() -> int:
    """The shell has nothing to do with the wire protocol of who wrote."""
    return 3


async def shell(cluster: RealCluster, *arguments: str) -> str:
    done = await asyncio.to_thread(cluster.shell, *arguments)
    return done.stdout + done.stderr


@pytest.mark.matrix("shell: ledgermetadata")
async def test_ledgermetadata_shows_a_python_ledger(python: BookKeeper, real: RealCluster) -> None:
    ledger_id = await written(python, 5, custom_metadata={"made-by": b"python"})

    shown = await shell(real, "ledgermetadata", "-ledgerid", str(ledger_id))

    assert re.search(rf"ledgerid[ :=]+{ledger_id}\b", shown, re.IGNORECASE), shown
    assert "CLOSED" in shown
    assert "made-by" in shown


@pytest.mark.matrix("shell: readledger")
async def test_readledger_reads_a_python_ledger(python: BookKeeper, real: RealCluster) -> None:
    ledger_id = await written(python, 5)

    shown = await shell(real, "readledger", "-ledgerid", str(ledger_id), "-msg")

    for entry_id in range(5):
        assert re.search(rf"(entry|eid).*\b{entry_id}\b", shown, re.IGNORECASE), shown


@pytest.mark.matrix("shell: listledgers")
async def test_listledgers_lists_a_python_ledger(python: BookKeeper, real: RealCluster) -> None:
    ledger_id = await written(python, 1)

    assert re.search(rf"\b{ledger_id}\b", await shell(real, "listledgers"))


@pytest.mark.matrix("shell: listbookies")
async def test_listbookies_lists_what_python_sees(python: BookKeeper, real: RealCluster) -> None:
    shown = await shell(real, "listbookies", "-rw")

    for bookie_id in (await python.bookies()).writable:
        assert bookie_id in shown


@pytest.mark.matrix("shell: simpletest")
async def test_simpletest_writes_beside_python(python: BookKeeper, real: RealCluster) -> None:
    before = {ledger_id async for ledger_id in python.list_ledgers()}

    shown = await shell(
        real, "simpletest", "-ensemble", "3", "-writeQuorum", "2", "-ackQuorum", "2", "-numEntries", "50"
    )

    assert "50 entries written to ledger" in shown, shown
    # It deletes its ledger in the end.
    assert {ledger_id async for ledger_id in python.list_ledgers()} == before


async def ledger_on_a_bookie_about_to_die(python: BookKeeper, cluster: RealCluster) -> tuple[int, str]:
    """A closed ledger, and a member of its ensemble, dead and forgotten."""
    ledger_id = await written(python, 200, ensemble_size=3, write_quorum_size=2, ack_quorum_size=2)
    victim = (await python.ledger_metadata(ledger_id)).fragments[0].ensemble[0]
    cluster.bookie(victim).kill()
    await asyncio.to_thread(cluster.wait_unregistered, victim)
    return ledger_id, victim


@pytest.mark.matrix("shell: recover")
async def test_recover_moves_a_python_ledger_away(mortal: RealCluster, new_client: ClientFactory) -> None:
    python: BookKeeper = await new_client(mortal.metadata_uri)
    ledger_id, victim = await ledger_on_a_bookie_about_to_die(python, mortal)
    mortal.bookies.sort(key=lambda bookie: bookie.bookie_id == victim)  # the shell reads a living one's configuration

    await shell(mortal, "recover", "-f", victim)

    assert victim not in (await python.ledger_metadata(ledger_id)).fragments[0].ensemble
    assert await payloads_of(await python.open_ledger(ledger_id, recover=True)) == [
        pattern(entry_id) for entry_id in range(200)
    ]


@pytest.mark.matrix("autorecovery daemon")
async def test_java_s_autorecovery_moves_a_python_ledger_away(
    build: Build, mortal: RealCluster, new_client: ClientFactory
) -> None:
    python: BookKeeper = await new_client(mortal.metadata_uri)
    with (mortal.bookies[0].log_path.parent / "autorecovery.log").open("wb") as log:
        daemon = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            build.command(
                "org.apache.bookkeeper.replication.AutoRecoveryMain",
                "--conf",
                str(mortal.bookies[0].configuration),
                log_level="INFO",
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        await asyncio.sleep(3)  # until it has been elected; a bookie it never saw is none it can miss
        ledger_id, victim = await ledger_on_a_bookie_about_to_die(python, mortal)
        async with asyncio.timeout(120):
            while victim in (await python.ledger_metadata(ledger_id)).fragments[0].ensemble:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert await payloads_of(await python.open_ledger(ledger_id, recover=True)) == [
            pattern(entry_id) for entry_id in range(200)
        ]
    finally:
        daemon.kill()
        daemon.wait()

"""Cookies that belong to disks: a folder goes from a bookie of BookKeeper's to one of ours and back, in one cluster only."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from bkclient import BookKeeper
from simbookie.processes import BookieProcess, BookieStartError
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.conftest import PATIENT, ClientFactory
from tests.interop.real_bookie import RealBookie, RealCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def ours_on(cluster: RealCluster, bookie: RealBookie, logs: Path, bookie_id: str | None = None) -> BookieProcess:
    """A bookie of ours in the folder, under the id and at the port of a real one."""
    folder = bookie.configuration.parent
    options = ["--data", str(folder), "--session-timeout-s", "4"]
    identity = bookie_id or bookie.bookie_id
    return BookieProcess("ours", cluster.metadata_uri, logs, port=bookie.port, bookie_id=identity, options=options)


async def write(client: BookKeeper) -> int:
    async with await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1) as writer:
        for number in range(50):
            await writer.append(b"%d" % number)
        return writer.ledger_id


async def test_a_folder_changes_hands_with_its_cookie(
    build: Build,
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    new_client: ClientFactory,
) -> None:
    settings = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage"}
    with RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("cookies"), settings) as cluster:
        await asyncio.to_thread(cluster.start, 1)
        (bookie,) = cluster.bookies
        client = await new_client(cluster.metadata_uri, timeouts=PATIENT)
        theirs = await write(client)
        await asyncio.to_thread(bookie.end)
        await asyncio.to_thread(cluster.wait_unregistered, bookie.bookie_id)

        with pytest.raises(BookieStartError, match=f"the data of bookie {bookie.bookie_id}, not of other"):
            await asyncio.to_thread(ours_on(cluster, bookie, tmp_path, "other").start)
        ours = ours_on(cluster, bookie, tmp_path)
        await asyncio.to_thread(ours.start)
        reader = await client.open_ledger(theirs)
        assert [each.payload async for each in reader] == [b"%d" % number for number in range(50)]
        own = await write(client)
        assert await asyncio.to_thread(ours.terminate) == 0

        await asyncio.to_thread(cluster.restart, bookie)
        for ledger_id in (theirs, own):
            reader = await client.open_ledger(ledger_id)
            assert [each.payload async for each in reader] == [b"%d" % number for number in range(50)]


async def test_a_real_bookie_starts_on_a_folder_that_ours_stamped_and_not_in_another_place(
    build: Build,
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    new_client: ClientFactory,
) -> None:
    with RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("stamped")) as cluster:
        (bookie,) = cluster.add(1, wait=False)
        await asyncio.to_thread(cluster.shell, "initnewcluster")
        ours = ours_on(cluster, bookie, tmp_path)
        await asyncio.to_thread(ours.start)
        client = await new_client(cluster.metadata_uri, timeouts=PATIENT)
        own = await write(client)
        assert await asyncio.to_thread(ours.terminate) == 0

        told = await asyncio.to_thread(cluster.shell, "cookie_get", bookie.bookie_id)
        assert f'bookieHost: "{bookie.bookie_id}"' in told.stdout
        assert f'journalDir: "{bookie.configuration.parent}/journal"' in told.stdout

        await asyncio.to_thread(cluster.restart, bookie)
        reader = await client.open_ledger(own)
        assert [each.payload async for each in reader] == [b"%d" % number for number in range(50)]
        await asyncio.to_thread(bookie.end)

        place = bookie.configuration.parent
        text = bookie.configuration.read_text()
        bookie.configuration.write_text(
            re.sub(r"(?m)^journalDirectories=.*$", f"journalDirectories={place}/other", text)
        )
        bookie.spawn()
        while bookie.is_running:  # noqa: ASYNC110  a process
            await asyncio.sleep(0.1)
        assert "is not matching with" in bookie.log_path.read_text(errors="replace")

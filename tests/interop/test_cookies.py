"""Cookies that belong to disks: whose folder it is, and where it was, counts for bookies of BookKeeper's and for ours alike."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from simbookie.processes import BookieProcess, BookieStartError
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.changing_hands import DISKS, Place

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


async def test_a_folder_is_one_bookies_in_one_place(
    build: Build, zookeeper: ZooKeeperServer, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = Place.new(DISKS[4], zookeeper, build, tmp_path_factory.mktemp("cookies"))
    bookie = place.cluster.bookies[0]
    root = bookie.configuration.parent
    try:
        await asyncio.to_thread(place.start_ours)
        await asyncio.to_thread(place.end)
        (told,) = await asyncio.to_thread(place.shell, ["cookie_get", bookie.bookie_id])
        assert f'bookieHost: "{bookie.bookie_id}"' in told
        assert f'journalDir: "{root}/journal"' in told

        await asyncio.to_thread(place.start_real)
        await asyncio.to_thread(place.end)
        other = BookieProcess(
            "other", place.cluster.metadata_uri, tmp_path, bookie_id="127.0.0.1:1", options=["--data", str(root)]
        )
        with pytest.raises(BookieStartError, match=f"the data of bookie {bookie.bookie_id}, not of 127.0.0.1:1"):
            await asyncio.to_thread(other.start)

        text = bookie.configuration.read_text()
        bookie.configuration.write_text(
            re.sub(r"(?m)^journalDirectories=.*$", f"journalDirectories={root}/other", text)
        )
        bookie.spawn()
        while bookie.is_running:  # noqa: ASYNC110  a process
            await asyncio.sleep(0.1)
        assert "is not matching with" in bookie.log_path.read_text(errors="replace")
    finally:
        place.close()

"""Folders of a bookie that go from ours to BookKeeper's and back: every kind of storage, every way to end, both directions.

For each kind and version one bookie's folders change hands several times, under one id, port and cookie. The bookie that takes
over has to hold what was promised until then: every entry, fence and explicit LAC. After a kill in mid-write both replay copies
of the same folders, and have to agree about everything, what was not acknowledged included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.changing_hands import DISKS, DiskLayout, Place
from tests.interop.files_told import ledgers_in, logs_in, what_is_wrong_with_the_form, what_the_shell_finds_wrong
from tests.interop.held import Held, MidWrite, Promised, add, differences, fence, held_by, write_lac
from tests.interop.raw import connected, stream_until_it_is_dead

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

#: More than one checkpoint of either bookie.
_CHECKPOINTED_S: Final = 2.5
_IN_FLIGHT: Final = 200
_KILL_AFTER: Final = 1500
_LEDGERS_IN_MID_WRITE_MAX: Final = 1000


@dataclass
class Story:
    """What happened to the folders so far. Steps come one after the other; each is made once, when it is asked for."""

    place: Place
    promised: Promised = field(default_factory=Promised)
    next_ledger: int = 1
    made: int = 0
    trouble: BaseException | None = None
    found: dict[str, list[str]] = field(default_factory=dict)

    async def until(self, wanted: str) -> list[str]:
        """What is wrong with the step ``wanted``, after all the steps before it."""
        names = list(STEPS)
        while self.made <= names.index(wanted):
            if self.trouble is not None:
                raise RuntimeError(f"an earlier step did not end: {self.trouble}")
            name = names[self.made]
            try:
                self.found[name] = await STEPS[name](self)
            except BaseException as error:
                self.trouble = error
                await asyncio.to_thread(self.place.close)
                raise
            self.made += 1
        return self.found[wanted]

    def ledgers(self, count: int) -> tuple[int, ...]:
        """Ledgers that nobody has written to yet."""
        first, self.next_ledger = self.next_ledger, self.next_ledger + count
        return tuple(range(first, first + count))

    # What is written --------------------------------------------------------------------------------------------------

    async def write(self) -> None:
        """An open ledger and one that is taken over, each with an explicit LAC."""
        writable, taken_over = self.ledgers(2)
        async with connected(self.place.port) as bookie:
            for first in (0, 31):
                adds = [add(ledger, first + n) for n in range(30) for ledger in (writable, taken_over)]
                await self.promised.ask(bookie, *adds)
                # an entry after the LAC and after the fence, as clients send them: bookies of BookKeeper lose what comes alone
                lacs = [write_lac(ledger, first + 28) for ledger in (writable, taken_over)]
                await self.promised.ask(bookie, *lacs, *(add(ledger, first + 30) for ledger in (writable, taken_over)))
            await self.promised.ask(bookie, fence(taken_over), add(taken_over, 62, recovery=True))

    async def write_to_be_killed(self) -> None:
        """What is in logs and indexes by the time of the kill, and what is in the journal alone."""
        await self.write()
        await asyncio.sleep(_CHECKPOINTED_S)
        await self.write()
        await asyncio.to_thread(self.place.kill)

    async def write_until_killed(self) -> None:
        """Some two hundred requests are under way when it is killed."""
        (first, *_) = self.ledgers(_LEDGERS_IN_MID_WRITE_MAX)
        async with connected(self.place.port) as bookie:
            stream = await stream_until_it_is_dead(bookie, MidWrite(first), _IN_FLIGHT, self.place.kill, _KILL_AFTER)
        await asyncio.to_thread(self.place.kill)
        self.promised.streamed(stream)
        assert len(stream.acknowledged) >= _KILL_AFTER
        assert len(stream.sent) > len(stream.acknowledged)

    def lacs_fall(self, start: Callable[[], None]) -> bool:
        """Whether who is started may give an older explicit LAC than was acknowledged.

        Bookies of BookKeeper with index files do: what is replayed before the file is opened is replaced by what is in its header
        (``test_real_defects.py``).
        """
        return start == self.place.start_real and self.place.layout.has_index_files

    # What is found ----------------------------------------------------------------------------------------------------

    async def held(self) -> Held:
        async with connected(self.place.port) as bookie:
            return await held_by(bookie, self.promised)

    async def taken_over(self, start: Callable[[], None]) -> list[str]:
        """Start the other bookie, and see what is missing."""
        await asyncio.to_thread(start)
        held = await self.held()
        wrong = list(self.promised.broken_by(held, lacs_fall=self.lacs_fall(start)))
        self.promised.tried(held)
        return wrong

    async def both_replay(self, first: Callable[[], None], last: Callable[[], None]) -> list[str]:
        """Have both replay the same folders, one after the other, in their place; the last one goes on."""
        place = self.place
        as_it_was = await asyncio.to_thread(place.copy)
        held: list[Held] = []
        files: list[dict[int, tuple[object, ...]]] = []
        wrong: list[str] = []
        for start in (first, last):
            if held:
                await asyncio.to_thread(place.put_back, as_it_was)
            await asyncio.to_thread(start)
            held.append(await self.held())
            wrong += self.promised.broken_by(held[-1], lacs_fall=self.lacs_fall(start))
            await asyncio.to_thread(place.end)
            files.append(ledgers_in(place, lacs_fall=place.layout.has_index_files))
        wrong += differences(*held, lacs_fall=place.layout.has_index_files)
        wrong += [
            f"index of ledger {each}: {files[0].get(each)}, {files[1].get(each)}"
            for each in files[0] | files[1]
            if files[0].get(each) != files[1].get(each)
        ]
        self.promised.tried(held[-1])
        return wrong


async def _ours_ends(story: Story) -> list[str]:
    await asyncio.to_thread(story.place.start_ours)
    await story.write()
    await asyncio.to_thread(story.place.end)
    return []


async def _shell_reads_ours(story: Story) -> list[str]:
    return await asyncio.to_thread(what_the_shell_finds_wrong, story.place, story.promised)


async def _to_real_in_order(story: Story) -> list[str]:
    return await story.taken_over(story.place.start_real)


async def _to_ours_in_order(story: Story) -> list[str]:
    await story.write()
    await asyncio.to_thread(story.place.end)
    return await story.taken_over(story.place.start_ours)


async def _to_real_killed(story: Story) -> list[str]:
    """Logs of any form are read by a bookie that is told of shared ones, and writes these."""
    await story.write_to_be_killed()
    story.place.tell_of_shared_logs(instead=True)
    return await story.taken_over(story.place.start_real)


async def _to_ours_killed(story: Story) -> list[str]:
    await story.write_to_be_killed()
    story.place.tell_of_shared_logs(instead=False)
    before = story.place.contents()
    ledgers_in(story.place, lacs_fall=False)
    wrong = [] if story.place.contents() == before else ["what looked into the files changed them"]
    return wrong + await story.taken_over(story.place.start_ours)


async def _ours_in_mid_write(story: Story) -> list[str]:
    await story.write_until_killed()
    return await story.both_replay(story.place.start_ours, story.place.start_real)


async def _real_in_mid_write(story: Story) -> list[str]:
    before = logs_in(story.place)
    await asyncio.to_thread(story.place.start_real)
    await story.write_until_killed()
    wrong = what_is_wrong_with_the_form(story.place, logs_in(story.place) - before)
    return wrong + await story.both_replay(story.place.start_ours, story.place.start_real)


#: In the order in which they are made: who has the folders before is who had them after the step before.
STEPS: Final[Mapping[str, Callable[[Story], Awaitable[list[str]]]]] = {
    "ours ends": _ours_ends,
    "the shell reads ours": _shell_reads_ours,
    "ours to real, in order": _to_real_in_order,
    "real to ours, in order": _to_ours_in_order,
    "ours to real, killed": _to_real_killed,
    "real to ours, killed": _to_ours_killed,
    "ours in mid-write, both": _ours_in_mid_write,
    "real in mid-write, both": _real_in_mid_write,
}


@pytest.fixture(scope="module", params=DISKS, ids=lambda disk: disk.name.replace(", ", "-").replace(" ", "-"))
def disk(request: pytest.FixtureRequest) -> DiskLayout:
    chosen: DiskLayout = request.param
    return chosen


@pytest.fixture(scope="module")
def story(
    disk: DiskLayout, build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    place = Place.new(disk, zookeeper, build, tmp_path_factory.mktemp("disk"))
    yield Story(place)
    place.close()


@pytest.mark.storage("shell on ours")
async def test_bookkeepers_shell_reads_every_file_of_ours(story: Story) -> None:
    assert await story.until("the shell reads ours") == []


@pytest.mark.storage("ours to real, in order")
async def test_a_real_bookie_takes_over_from_ours_that_was_stopped_in_order(story: Story) -> None:
    assert await story.until("ours to real, in order") == []


@pytest.mark.storage("real to ours, in order")
async def test_we_take_over_from_a_real_bookie_that_was_stopped_in_order(story: Story) -> None:
    assert await story.until("real to ours, in order") == []


@pytest.mark.storage("ours to real, killed")
async def test_a_real_bookie_takes_over_from_ours_that_was_killed(story: Story) -> None:
    assert await story.until("ours to real, killed") == []


@pytest.mark.storage("real to ours, killed")
async def test_we_take_over_from_a_real_bookie_that_was_killed(story: Story) -> None:
    assert await story.until("real to ours, killed") == []


@pytest.mark.storage("ours in mid-write, both")
async def test_both_replay_what_ours_left_in_mid_write_to_the_same(story: Story) -> None:
    assert await story.until("ours in mid-write, both") == []


@pytest.mark.storage("real in mid-write, both")
async def test_both_replay_what_a_real_bookie_left_in_mid_write_to_the_same(story: Story) -> None:
    assert await story.until("real in mid-write, both") == []

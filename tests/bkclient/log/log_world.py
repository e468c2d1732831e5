"""Logs in a simulated world: owners that race, crash and lose answers, and what has to be true of the log in the end.

:func:`play` runs one seed; :func:`judge` looks at nothing but what publishers were told and what a reader finds.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from bkclient.log import Logs, LogSettings, MessageId, PublishSettings
from simbookie.world.faults import Delay
from simbookie.world.hosts import Host
from simbookie.world.links import NetworkConfig
from simbookie.world.metadata_service import MetadataAction, MetadataCall, MetadataFault
from tests.bkclient.virtual_cluster import VirtualCluster, run_in_cluster

NAME = "log"
SETTINGS = LogSettings(max_ledger_entries=4, min_ledger_s=0, max_ledger_s=3)
FAULTS: list[MetadataAction] = [MetadataFault.ANSWER_LOST, MetadataFault.CALL_LOST, Delay(11.0), Delay(0.05)]
OWNERS = "abc"
MESSAGES = 24


@dataclass
class Run:
    """What became of one run."""

    #: By owner, what it was told of which message.
    acknowledged: list[tuple[str, int, MessageId]] = field(default_factory=list)
    found: list[tuple[MessageId, str]] = field(default_factory=list)
    #: Ledgers that hold entries, and those of the list.
    written: set[int] = field(default_factory=set)
    listed: set[int] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


def judge(run: Run) -> list[str]:
    """Which promises the log broke."""
    broken = []
    ids = [message_id for message_id, _ in run.found]
    texts = [text for _, text in run.found]
    if ids != sorted(set(ids)):
        broken.append("ids do not ascend")
    if len(set(texts)) != len(texts):
        broken.append("a message is there twice")
    where = {text: message_id for message_id, text in run.found}
    for owner, number, message_id in run.acknowledged:
        if where.get(f"{owner}{number}") != message_id:
            broken.append(f"{owner}{number} was acknowledged as {message_id} and is at {where.get(f'{owner}{number}')}")
    for owner in OWNERS:
        own = [int(text[1:]) for text in texts if text.startswith(owner)]
        if own != sorted(own):
            broken.append(f"the messages of {owner} are out of order: {own}")
    if run.written - run.listed:
        broken.append(f"ledgers {sorted(run.written - run.listed)} hold entries and are not in the list")
    return broken


async def publish(cluster: VirtualCluster, host: Host, owner: str, run: Run, rng: Random) -> None:
    """One owner: claims, publishes one by one and in bursts, and notes what it is told."""
    settings = PublishSettings(batch_messages=2, batch_delay_s=0.002, give_up_s=60)

    def note(number: int, future: asyncio.Future[MessageId]) -> None:
        if not future.cancelled() and future.exception() is None:
            run.acknowledged.append((owner, number, future.result()))

    async with cluster.client_on(host) as client:
        try:
            async with Logs(client, rng=rng).writer(NAME, owner=owner, settings=settings) as log:
                for number in range(MESSAGES):
                    future = log.publish_nowait(f"{owner}{number}".encode())
                    future.add_done_callback(lambda done, number=number: note(number, done))  # type: ignore[misc]
                    if rng.random() < 0.6:
                        await log.flush()
                    await asyncio.sleep(rng.choice([0.0, 0.0, 0.0, 0.0, 0.01, 0.2, 1.0]))
        except BookKeeperError as error:
            run.failures.append(f"{owner}: {error}")


async def disturb(cluster: VirtualCluster, hosts: dict[str, Host], rng: Random) -> None:
    """Crash bookies and owners, and disturb what they ask the metadata service."""

    def is_write(call: MetadataCall) -> bool:
        return call.operation in ("tree_write", "tree_create", "create_ledger", "write_ledger")

    names = list(cluster.bookies)
    for _ in range(8):
        await asyncio.sleep(rng.choice([rng.uniform(0.0, 0.3), rng.uniform(0.0, 1.5)]))
        match rng.randrange(8):
            case 5 | 6 | 7:
                await recover_as_stranger(cluster)
            case 0:
                name = rng.choice(names)
                if all(cluster.bookies[other].is_alive for other in names):
                    cluster.bookies[name].crash()
                    await asyncio.sleep(rng.uniform(0.1, 4.0))
                    cluster.bookies[name].restart()
            case 1:
                hosts[rng.choice(OWNERS[:-1])].crash()
            case 2:
                cluster.world.metadata.lose_sessions(rng.choice(OWNERS))
            case _:
                cluster.world.metadata.intercept(is_write, rng.choice(FAULTS), limit=1)


async def recover_as_stranger(cluster: VirtualCluster) -> None:
    """Recover the ledger that is being written to, as auto-recovery does it to repair one."""
    async with cluster.client() as client:  # on the host that is not disturbed
        try:
            for ledger_id in (await Logs(client, rng=Random(1)).info(NAME)).open_ledgers:
                async with await client.open_ledger(ledger_id, recover=True):
                    pass
        except BookKeeperError:
            return


def play(seed: int) -> Run:
    """One run: owners take the log over from each other under faults; the last one lives, and all is read in the end."""
    run, rng = Run(), Random(seed)

    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client() as client:
            await Logs(client, rng=rng).create(NAME, SETTINGS)
        hosts = {owner: Host(cluster.world, owner) for owner in OWNERS}
        disturbing = asyncio.create_task(disturb(cluster, hosts, rng))
        tasks = []
        for owner in OWNERS:
            if hosts[owner].is_alive:
                tasks.append(hosts[owner].spawn(publish, cluster, hosts[owner], owner, run, Random(f"{seed}{owner}")))
            await asyncio.sleep(rng.choice([0.0, 0.02, 0.5, 3.0]))
        await disturbing
        await asyncio.wait(tasks, timeout=400)
        for host in hosts.values():
            host.crash()
        await asyncio.sleep(30)
        async with cluster.client("reader") as client:
            await read(client, run)

    run_in_cluster(program, bookies=4, seed=seed, network=NetworkConfig(slow_probability=0.1, slow_s=0.5))
    return run


async def read(client: BookKeeper, run: Run) -> None:
    """Take the log over, so that it ends, and read all of it."""
    logs = Logs(client, rng=Random(1))
    async with logs.writer(NAME, owner="last"):
        pass
    async with logs.reader(NAME, follow=False) as reader:
        run.found += [(message.id, message.payload.decode()) async for message in reader]
    run.listed |= {ledger.ledger_id for ledger in (await logs.info(NAME)).ledgers}
    async for ledger_id in client.list_ledgers():
        metadata = await client.ledger_metadata(ledger_id)
        if metadata.is_closed:
            if metadata.last_entry_id >= 0:
                run.written.add(ledger_id)
        else:
            async with await client.open_ledger(ledger_id, recover=True) as reader_of_ledger:
                if reader_of_ledger.last_add_confirmed >= 0:
                    run.written.add(ledger_id)

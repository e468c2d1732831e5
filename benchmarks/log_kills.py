"""Kills owners of a log and bookies by SIGKILL, again and again, and checks the messages from outside.

``python -m benchmarks.log_kills --kills 200``: four bookies on disk and a ZooKeeper as processes, and one owner process after
the other, which publish over TCP (:mod:`benchmarks.log_publisher`). A killed bookie is started again on its folder; a killed
owner has a successor, which sometimes comes before the kill, and sometimes the owner is stopped instead and wakes as a zombie.
In the end somebody else reads the log, and its messages are compared with what the publishers wrote down: none acknowledged is
lost or elsewhere, none is there twice, each publisher's are in order, and those of later owners come later. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import bkclient
from bkclient.log import Logs, LogSettings, MessageId

__all__ = ["Outcome", "Publisher", "judge", "run"]

_LOG: Final = "killed"
_BOOKIES: Final = 4
_SETTINGS: Final = LogSettings(
    ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, max_ledger_entries=40, min_ledger_s=0
)
_PROGRESS: Final = 20
"""Acknowledgements between two kills."""
_PATIENCE_S: Final = 60.0
_SESSION_S: Final = 1.0
_SIM: Final = "from simbookie.cli import main; main()"


@dataclass
class Publisher:
    """What one owner asked for and was told, by its file."""

    name: str
    epoch: int = -1
    published: int = 0
    acknowledged: dict[int, MessageId] = field(default_factory=dict)
    end: str = ""

    @classmethod
    def of(cls, name: str, path: Path) -> Publisher:
        """Read the file of ``name``; the last line may be cut off."""
        found = cls(name)
        text = path.read_text() if path.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            word, *rest = line.split(maxsplit=2)
            if word == "o":
                found.epoch = int(rest[0])
            elif word == "p":
                found.published = int(rest[0]) + 1
            elif word == "a":
                found.acknowledged[int(rest[0])] = MessageId.parse(rest[1])
            else:
                found.end = line
        return found


@dataclass
class Outcome:
    """What a run came to."""

    kills: dict[str, int]
    zombies: int
    owners: int
    published: int
    acknowledged: int
    found: int
    ledgers: int
    wall_s: float
    broken: list[str]


def judge(publishers: list[Publisher], found: list[tuple[MessageId, str]]) -> list[str]:
    """Which promises are broken, by what publishers were told and what a reader found; some of each kind."""
    broken = []
    ids = [message_id for message_id, _ in found]
    if ids != sorted(set(ids)):
        broken.append("message ids do not ascend")
    places: dict[str, MessageId] = {}
    for message_id, text in found:
        if text in places:
            broken.append(f"{text} is at {places[text]} and at {message_id}")
        places[text] = message_id
    by_epoch = sorted(publishers, key=lambda publisher: publisher.epoch)
    known = {f"{publisher.name}:{number}" for publisher in by_epoch for number in range(publisher.published)}
    broken += [f"{text} was never published" for text in places.keys() - known]
    for publisher in by_epoch:
        for number, message_id in publisher.acknowledged.items():
            text = f"{publisher.name}:{number}"
            if places.get(text) != message_id:
                broken.append(f"{text} was acknowledged as {message_id} and is at {places.get(text)}")
    epochs = {publisher.name: publisher.epoch for publisher in by_epoch}
    order = [(epochs.get(name, -1), int(number)) for _, text in found for name, number in [text.split(":")]]
    broken += [
        f"message {after[1]} of epoch {after[0]} comes after message {before[1]} of epoch {before[0]}"
        for before, after in itertools.pairwise(order)
        if after <= before
    ]
    return broken[:20]


class _Cluster:
    """The processes: ZooKeeper, bookies on disk, owners."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bookies: list[subprocess.Popen[str]] = []
        self._ports = [_free_port() for _ in range(_BOOKIES + 1)]
        self.zookeeper = self._sim("zookeeper", "--port", str(self._ports[-1]), "--server", "embedded", "--json")
        self.uri = str(_line_of(self.zookeeper)["metadata"])
        for index in range(_BOOKIES):
            self.bookies.append(self.start_bookie(index))
        for bookie in self.bookies:
            _line_of(bookie)

    def _sim(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _SIM, *words]
        with (self.folder / f"{words[0]}.log").open("a") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def start_bookie(self, index: int) -> subprocess.Popen[str]:
        """Start a bookie on its folder and port."""
        port, data = str(self._ports[index]), str(self.folder / f"bookie-{index}")
        return self._sim(
            *("bookie", "--metadata", self.uri, "--port", port, "--data", data),
            *("--session-timeout-s", str(_SESSION_S), "--json"),
        )

    def start_owner(self, name: str) -> subprocess.Popen[bytes]:
        """Start an owner, which takes the log over."""
        path = str(self.folder / f"{name}.txt")
        command = [sys.executable, "-m", "benchmarks.log_publisher", self.uri, _LOG, name, path]
        with (self.folder / "owners.log").open("a") as log:
            return subprocess.Popen(command, stderr=log)

    def publisher(self, name: str) -> Publisher:
        """What an owner wrote down so far."""
        return Publisher.of(name, self.folder / f"{name}.txt")

    def stop(self) -> None:
        """End what is left."""
        for process in (*self.bookies, self.zookeeper):
            _end(process)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _line_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait()}")
    shown: dict[str, Any] = json.loads(line)
    return shown


class _Killing:
    """One run: who owns the log, and what is killed next."""

    def __init__(self, cluster: _Cluster, rng: Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.names: list[str] = []
        self.kills = {"owner": 0, "bookie": 0}
        self.zombies = 0
        self.owner = self._next_owner()

    def _next_owner(self) -> subprocess.Popen[bytes]:
        self.names.append(f"owner-{len(self.names)}")
        return self.cluster.start_owner(self.names[-1])

    def wait_for_progress(self) -> None:
        """Wait until the newest owner got some more acknowledgements; raises if it does not."""
        before = len(self.cluster.publisher(self.names[-1]).acknowledged)
        until = time.monotonic() + _PATIENCE_S
        while len(self.cluster.publisher(self.names[-1]).acknowledged) < before + _PROGRESS:
            if time.monotonic() > until or self.owner.poll() is not None:
                raise RuntimeError(
                    f"{self.names[-1]} gets no acknowledgements: {self.cluster.publisher(self.names[-1]).end}"
                )
            time.sleep(0.01)
        time.sleep(self.rng.uniform(0.0, 0.1))

    def kill(self) -> None:
        """Kill something, and have it replaced."""
        self.rng.choice((self.kill_owner, self.kill_owner_after_takeover, self.kill_bookie, self.kill_bookie))()
        if self.rng.random() < 0.1:
            self.wait_for_progress()
            self.let_zombie_wake()

    def kill_owner(self) -> None:
        """Kill the owner; another one takes over."""
        _end(self.owner)
        self.kills["owner"] += 1
        self.owner = self._next_owner()

    def kill_owner_after_takeover(self) -> None:
        """Start another owner, and kill the one before while that takes over."""
        old, self.owner = self.owner, self._next_owner()
        time.sleep(self.rng.uniform(0.2, 0.8))
        if old.poll() is None:
            self.kills["owner"] += 1
        _end(old)

    def let_zombie_wake(self) -> None:
        """Stop the owner, let another one publish, and let the first one go on; it has to find that it is deposed."""
        old, name, self.owner = self.owner, self.names[-1], self._next_owner()
        old.send_signal(signal.SIGSTOP)
        self.wait_for_progress()
        old.send_signal(signal.SIGCONT)
        old.wait(_PATIENCE_S)
        if self.cluster.publisher(name).end != "d":
            raise RuntimeError(f"{name} should be deposed, and ended with {self.cluster.publisher(name).end!r}")
        self.zombies += 1

    def kill_bookie(self) -> None:
        """Kill a bookie, and start it again a little later on what it has on disk."""
        index = self.rng.randrange(_BOOKIES)
        _end(self.cluster.bookies[index])
        self.kills["bookie"] += 1
        time.sleep(self.rng.choice((0.0, 0.3, 1.5)))
        self.cluster.bookies[index] = self.cluster.start_bookie(index)
        _line_of(self.cluster.bookies[index])


def _end(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


async def _create(uri: str) -> None:
    async with bkclient.connect(uri) as client:
        await Logs(client).create(_LOG, _SETTINGS)


async def _read(uri: str) -> tuple[list[tuple[MessageId, str]], int]:
    """Everything in the log once nobody publishes any more, and how many ledgers it is in."""
    async with bkclient.connect(uri) as client:
        logs = Logs(client)
        async with logs.writer(_LOG, owner="reader"):
            pass  # so that the last ledger has ended
        async with logs.reader(_LOG, follow=False) as reader:
            found = [(message.id, message.payload.decode()) async for message in reader]
        return found, len((await logs.info(_LOG)).ledgers)


def run(folder: Path, kills: int, seed: int = 0, *, tells: bool = False) -> Outcome:
    """Kill so many owners and bookies, and judge what is in the log then. Files are left in ``folder``."""
    began, rng = time.monotonic(), Random(seed)
    cluster = _Cluster(folder)
    killing = None
    try:
        asyncio.run(_create(cluster.uri))
        killing = _Killing(cluster, rng)
        while sum(killing.kills.values()) < kills:
            killing.wait_for_progress()
            killing.kill()
            if tells:
                print(f"\r{killing.kills} zombies {killing.zombies}  ", end="", file=sys.stderr, flush=True)
        killing.wait_for_progress()
        _end(killing.owner)
        found, ledgers = asyncio.run(_read(cluster.uri))
    finally:
        if killing is not None:
            _end(killing.owner)
        cluster.stop()
    publishers = [cluster.publisher(name) for name in killing.names]
    return Outcome(
        kills=killing.kills,
        zombies=killing.zombies,
        owners=len(publishers),
        published=sum(publisher.published for publisher in publishers),
        acknowledged=sum(len(publisher.acknowledged) for publisher in publishers),
        found=len(found),
        ledgers=ledgers,
        wall_s=round(time.monotonic() - began, 1),
        broken=judge(publishers, found),
    )


def main() -> None:
    """Run it and print the outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the files; by default a temporary one")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        outcome = run(folder, asked.kills, asked.seed, tells=sys.stderr.isatty())
    print(json.dumps(vars(outcome), indent=2))
    sys.exit(1 if outcome.broken else 0)


if __name__ == "__main__":
    main()

"""A log of ours beside a topic of an Apache Pulsar broker, with Pulsar's Java client, on the same bookies.

``topic-publish`` hands in messages of 100 bytes, at most 20,000 of them not acknowledged, which either client gathers to
batches of at most 1,000, 128 KiB, and 1 ms. ``topic-read`` reads them again from the beginning. A ledger has three bookies, a
write quorum of three and an ack quorum of two for both. The broker is a process of its own, with its defaults but for these
quorums and the version of BookKeeper's protocol.

A broker is one more process that every message goes through. CPU time is told of the client, the broker and the bookies, and of
all of them. Client and broker are JVMs that serve all rounds and have published and read three times before they are measured.

    python -m benchmarks.pulsar --rounds 5 --bookies ours --protocol 3

The jars are those that ``make interop`` fetches (``mvn -f tests/interop/pulsar/pom.xml compile``); without them ours is measured
alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import Bench, Bookies, command
from benchmarks.java_client import FastBuild, JavaClient
from benchmarks.logs import BATCH, MESSAGES, PENDING, SIZE, per_message, publish
from benchmarks.measuring import OURS, Contender, Result, Values, compared, in_turn, run_on
from benchmarks.processes import CpuOf
from bkclient.log import PublishSettings
from tests.interop.pulsar_broker import PulsarBroker, pulsar_build

_PROGRAM: Final = Path(__file__).parent / "java" / "PulsarBench.java"
_WARM_UPS: Final = 3


class _Topics:
    """Topics of one broker, each published to once."""

    def __init__(self, client: JavaClient, broker: PulsarBroker, bookies: Bookies) -> None:
        self._client, self._broker, self._bookies = client, broker, bookies
        self._names = itertools.count()

    def __call__(self, messages: int, *, is_read: bool) -> Values:
        """What publishing took, or reading."""
        limits = PublishSettings()
        request = {
            "url": self._broker.url,
            "topic": f"persistent://public/default/topic-{next(self._names)}",
            "messages": messages,
            "size": SIZE,
            "pending": PENDING,
            "batch_messages": BATCH,
            "batch_bytes": limits.batch_bytes,
            "batch_delay_us": int(limits.batch_delay_s * 1e6),
        }
        self._client("open", **request)
        values = self._measured("publish", request)
        self._client("close", **request)
        return self._measured("read", request) if is_read else values

    def _measured(self, do: str, request: dict[str, Any]) -> Values:
        with CpuOf(self._bookies.pids) as bookies, CpuOf([self._broker.pid]) as broker:
            answer = self._client(do, **request)
        return per_message(request["messages"], answer["wall_s"], answer["cpu_s"], bookies.cpu_s, broker.cpu_s)


@contextmanager
def _topics(bench: Bench, build: FastBuild, bookies: Bookies, protocol: int, messages: int) -> Iterator[_Topics]:
    name = f"pulsar-{bookies.uri.rpartition('/')[2]}"
    folder = bench.folder / name
    settings = {
        "managedLedgerDefaultEnsembleSize": "3",
        "managedLedgerDefaultWriteQuorum": "3",
        "managedLedgerDefaultAckQuorum": "2",
        "bookkeeperUseV2WireProtocol": str(protocol == 2).lower(),
        "bookkeeperClientTimeoutInSeconds": "60",
    }
    with (
        PulsarBroker(build, folder, bookies.uri, f"/{name}", settings) as broker,
        JavaClient(build, folder / "client.log", _PROGRAM) as client,
    ):
        topics = _Topics(client, broker, bookies)
        for _ in range(_WARM_UPS):
            topics(messages, is_read=True)
        yield topics


def measure(bench: Bench) -> list[Result]:
    """Publishing and reading, in turn with Pulsar where it is there."""
    results = []
    messages = bench.scaled(MESSAGES, 20 * BATCH)
    found, reason = pulsar_build()
    build = FastBuild(found.version, found.directory) if found is not None else None
    bench.without += [reason] if reason else []
    for kind, protocol in itertools.product(bench.kinds, bench.protocols):
        with ExitStack() as stack:
            bookies = stack.enter_context(bench.bookies(kind))
            topics = stack.enter_context(_topics(bench, build, bookies, protocol, messages)) if build else None
            params = {"bookies": kind, "protocol": protocol, "payload_bytes": SIZE, "messages": messages}
            for name in ("topic-publish", "topic-read"):
                is_read = name == "topic-read"
                contenders: dict[str, Contender] = {
                    f"ours-{loop}": partial(_ours, bookies, protocol, messages, loop, is_read=is_read) for loop in OURS
                }
                if topics is not None:
                    contenders["pulsar"] = partial(topics, messages, is_read=is_read)
                results += compared(name, params, in_turn(contenders, bench.rounds))
    return results


def _ours(bookies: Bookies, protocol: int, messages: int, loop: str, *, is_read: bool) -> Values:
    return run_on(loop, publish(bookies, protocol, messages, is_read=is_read)) | {"broker-cpu": 0.0}


if __name__ == "__main__":
    command(measure, "A log of ours beside a topic of a Pulsar broker, on the same bookies.")

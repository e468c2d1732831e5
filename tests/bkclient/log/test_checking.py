"""What a check of a log finds: each defect is planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bkclient.log import LedgerEnd, LogLedgerReport, LogManifest, Logs, LogSettings
from bkclient.log.machine.codec import decode_manifest, encode_manifest
from bkclient.repair import Flaw
from tests.bkclient.log.test_logs import published, run
from tests.bkclient.virtual_cluster import VirtualCluster

ALL_COPIES = LogSettings(max_ledger_entries=1, min_ledger_s=0, ensemble_size=3, write_quorum_size=3)


async def checked(logs: Logs) -> list[LogLedgerReport]:
    return [report async for report in logs.check("log")]


async def rewrite(cluster: VirtualCluster, change: Callable[[LogManifest], LogManifest]) -> None:
    async with cluster.client("vandal") as client:
        tree = client.node_tree()
        node = await tree.get("logs/log")
        assert node is not None
        await tree.write("logs/log", encode_manifest(change(decode_manifest(node.data))), node.version)


def test_a_log_that_is_written_to_is_sound() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 3):
            found = await checked(logs)
            assert [(report.is_sound, report.is_open) for report in found] == [(True, False), (True, True)]
            assert found[0].copies is not None
            assert found[0].copies.copies_checked

    run(story, settings=ALL_COPIES.with_changes(max_ledger_entries=2))


def _longer(manifest: LogManifest) -> LogManifest:
    first = manifest.ledgers[0]
    assert first.end is not None
    return replace(manifest, ledgers=(replace(first, end=replace(first.end, last_entry_id=7)), *manifest.ledgers[1:]))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_longer, "it ends with entry 0, and the log says 7"),
        (lambda manifest: replace(manifest, log_id="another"), "was not made for the log"),
    ],
)
def test_a_list_that_does_not_fit_is_told(change: Callable[[LogManifest], LogManifest], problem: str) -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 2):
            pass
        await rewrite(cluster, change)
        found = await checked(logs)
        assert problem in found[0].problems[0]
        assert not found[0].is_sound

    run(story, settings=ALL_COPIES)


def test_a_ledger_that_was_not_closed_is_told() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 1):
            end = (await logs.info("log")).ledgers[0]
            await rewrite(cluster, lambda manifest: manifest.with_ends((_end_of(end.ledger_id),)))
            assert (await checked(logs))[0].problems == ("the log says that it has ended, and it is not closed",)

    run(story, settings=LogSettings())


def _end_of(ledger_id: int) -> LedgerEnd:
    return LedgerEnd(ledger_id, 0)


def test_copies_that_are_missing_are_told() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 2):
            pass
        cluster.bookies["b1"].crash()
        (first, second) = await checked(logs)
        assert not first.is_sound
        assert not second.is_sound
        assert first.problems == ()
        assert first.copies is not None
        assert {bad.flaw for bad in first.copies.fragments[0].bad} <= {Flaw.UNAVAILABLE, Flaw.UNREADABLE}

    run(story, settings=ALL_COPIES)

"""The HTTP interface of a bookie: the services behind BookKeeper's own give the same answers to the same requests as ours."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import bkclient
from simbookie.admin.server import ANSWERS
from simbookie.processes import BookieProcess
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.real_bookie import RealCluster
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

BOOKIE: Final = "/api/v1/bookie"
RECOVERY: Final = "/api/v1/autorecovery"
#: Answered without asking anybody, or with what a fresh bookie alone in its cluster knows.
REQUESTS: Final[list[tuple[str, str, Any]]] = [
    *((method, path, None) for path in ANSWERS for method in ("POST", "DELETE") if path != "/api/v1/ledger/delete"),
    ("GET", "/heartbeat", None),
    ("PUT", "/api/v1/config/server_config", {"a": 1, "b": True, "c": "x"}),
    ("PUT", "/api/v1/config/server_config", None),
    ("GET", "/api/v1/ledger/list", None),
    ("GET", "/api/v1/ledger/list?print_metadata=true&page=1", None),
    ("PUT", "/api/v1/ledger/list", None),
    ("GET", "/api/v1/ledger/metadata", None),
    ("GET", "/api/v1/ledger/metadata?ledger_id=77", None),
    ("GET", "/api/v1/ledger/read", None),
    ("DELETE", "/api/v1/ledger/delete", None),
    ("GET", "/api/v1/ledger/list?print_metadata=true&decode_meta=true", None),
    ("GET", "/api/v1/ledger/list?print_metadata=true&decode_meta=true&page=x", None),
    ("GET", "/api/v1/ledger/metadata?ledger_id=0", None),
    ("GET", "/api/v1/ledger/read?ledger_id=0", None),
    ("GET", "/api/v1/ledger/read?ledger_id=0&start_entry_id=1&end_entry_id=1", None),
    ("GET", "/api/v1/ledger/read?ledger_id=0&page=1&end_entry_id=2", None),
    ("GET", "/api/v1/ledger/read?ledger_id=0&start_entry_id=2&end_entry_id=1", None),
    ("GET", f"{BOOKIE}/state", None),
    ("PUT", f"{BOOKIE}/state", None),
    ("GET", f"{BOOKIE}/state/readonly", None),
    ("PUT", f"{BOOKIE}/state/readonly", {"readOnly": True}),
    ("GET", f"{BOOKIE}/state", None),
    ("GET", f"{BOOKIE}/list_bookies?type=ro", None),
    ("PUT", f"{BOOKIE}/state/readonly", {"readOnly": False}),
    ("GET", f"{BOOKIE}/is_ready", None),
    ("PUT", f"{BOOKIE}/is_ready", None),
    ("GET", f"{BOOKIE}/info", None),
    ("GET", f"{BOOKIE}/sanity", None),
    ("GET", f"{BOOKIE}/last_log_mark", None),
    ("GET", f"{BOOKIE}/list_disk_file", None),
    ("GET", f"{BOOKIE}/list_disk_file?file_type=index", None),
    ("PUT", f"{BOOKIE}/expand_storage", None),
    ("GET", f"{BOOKIE}/expand_storage", None),
    ("GET", f"{BOOKIE}/gc", None),
    ("GET", f"{BOOKIE}/gc_details", None),
    ("PUT", f"{BOOKIE}/gc_details", None),
    ("GET", f"{BOOKIE}/gc/suspend_compaction", None),
    ("PUT", f"{BOOKIE}/gc/suspend_compaction", None),
    ("PUT", f"{BOOKIE}/gc/suspend_compaction", {}),
    ("PUT", f"{BOOKIE}/gc/suspend_compaction", {"suspendMajor": True}),
    ("GET", f"{BOOKIE}/gc/suspend_compaction", None),
    ("PUT", f"{BOOKIE}/gc/resume_compaction", {"resumeMajor": True, "resumeMinor": True}),
    ("GET", f"{BOOKIE}/gc/resume_compaction", None),
    ("PUT", f"{BOOKIE}/gc", None),
    ("PUT", f"{BOOKIE}/gc", {"forceMajor": False, "other": 1}),
    ("PUT", f"{BOOKIE}/gc", "no object"),
    ("GET", f"{BOOKIE}/entry_location_compact", None),
    ("PUT", f"{BOOKIE}/entry_location_compact", None),
    ("PUT", f"{BOOKIE}/entry_location_compact", {"entryLocationRocksDBCompact": False}),
    ("PUT", f"{BOOKIE}/entry_location_compact", {"entryLocationRocksDBCompact": True}),
    ("PUT", f"{BOOKIE}/entry_location_compact", {"entryLocationRocksDBCompact": True, "entryLocations": "/x"}),
    ("GET", f"{BOOKIE}/list_bookies", None),
    ("GET", f"{BOOKIE}/list_bookies?print_hostnames=true", None),
    ("GET", f"{BOOKIE}/list_bookie_info", None),
    ("GET", f"{BOOKIE}/cluster_info", None),
    ("GET", f"{RECOVERY}/status", None),
    ("PUT", f"{RECOVERY}/status?enabled=false", None),
    ("PUT", f"{RECOVERY}/status?enabled=true", None),
    ("PUT", f"{RECOVERY}/status", None),
    ("GET", f"{RECOVERY}/list_under_replicated_ledger", None),
    ("GET", f"{RECOVERY}/who_is_auditor", None),
    ("PUT", f"{RECOVERY}/lost_bookie_recovery_delay", {"delay_seconds": 5}),
    ("GET", f"{RECOVERY}/lost_bookie_recovery_delay", None),
    ("PUT", f"{RECOVERY}/lost_bookie_recovery_delay", {}),
    ("PUT", f"{RECOVERY}/trigger_audit", None),
    ("PUT", f"{RECOVERY}/bookie", None),
    ("PUT", f"{RECOVERY}/bookie", {"bookie_src": []}),
    ("PUT", f"{RECOVERY}/decommission", None),
    ("PUT", f"{RECOVERY}/decommission", {}),
]

#: Where ours answers otherwise, and why.
OTHERWISE: Final = {
    f"{RECOVERY}/who_is_auditor": "there, a cluster without auto-recovery is an exception",
    f"{RECOVERY}/trigger_audit": "the same",
    "/api/v1/ledger/list?print_metadata=true&decode_meta=true&page=x": "a number that is none is 400, not 500",
    "/api/v1/ledger/metadata?ledger_id=77": "the answer says why",
    "/api/v1/ledger/list?print_metadata=true&page=1": "bytes as text, a random token among them",
}


def answered(port: int, method: str, path: str, body: Any) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def shape(text: str) -> str:
    """The text without what differs between any two bookies: names, places, numbers; the spaces stay."""
    text = re.sub(r"127\.0\.0\.1:\d+", "BOOKIE", text)
    text = re.sub(r"listening on \S+ with", "listening on ADDRESS with", text)
    text = re.sub(r'files" : "[^"]*"', 'files" : "FILES"', text)
    text = re.sub(r"- \d+\(\w+\.txn\)", "- N(N.txn)", text)
    return re.sub(r"\d+(\.\d+)?", "N", text)


async def written(uri: str) -> None:
    """A closed ledger, the first of its cluster."""
    async with bkclient.connect(uri) as client:
        writer = await client.create_ledger(
            ensemble_size=1, write_quorum_size=1, ack_quorum_size=1, password=b"secret", custom_metadata={"a": b"b"}
        )
        for number in range(3):
            await writer.append(b"entry %d" % number)
        await writer.close()


@contextmanager
def theirs(build: Build, cluster: RealCluster) -> Iterator[int]:
    (bookie,) = cluster.add(1, wait=False)
    cluster.shell("initnewcluster")
    command = build.command("peer.HttpBridge", str(bookie.configuration), heap_mb=320)
    with bookie.log_path.open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("port "):
                yield int(line.split()[1])
                return
        raise AssertionError(bookie.log_tail())
    finally:
        process.kill()
        process.communicate()


@contextmanager
def ours(uri: str, folder: Path) -> Iterator[int]:
    options = ["--data", str(folder / "data"), "--admin-port", "0", "--storage", "sorted"]
    port = free_port()
    bookie = BookieProcess("ours", uri, folder, port=port, bookie_id=f"127.0.0.1:{port}", options=options)
    bookie.start()
    try:
        assert bookie.admin_port is not None
        yield bookie.admin_port
    finally:
        bookie.kill()


def test_the_same_requests_have_the_same_answers(
    build: Build, zookeeper: ZooKeeperServer, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage", "httpServerEnabled": "false"}
    mine = zookeeper.metadata_uri(f"/http-ours-{build.version}")
    with (
        RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("http"), settings) as cluster,
        theirs(build, cluster) as real,
        ours(mine, tmp_path) as own,
    ):
        for uri in (cluster.metadata_uri, mine):
            asyncio.run(written(uri))
        different: dict[str, Any] = {}
        for method, path, body in REQUESTS:
            (status, text), (own_status, own_text) = (answered(port, method, path, body) for port in (real, own))
            if (status, shape(text)) != (own_status, shape(own_text)):
                different[f"{method} {path} {body}"] = ((status, text), (own_status, own_text))
        told = {name: answers for name, answers in different.items() if name.split()[1] not in OTHERWISE}
        assert told == {}
        assert len(different) == len(OTHERWISE), "where ours answers otherwise it does"

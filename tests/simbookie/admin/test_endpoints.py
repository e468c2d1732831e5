"""Every path of the operators' interface: what it answers, what it does, and what it refuses, as BookKeeper's does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bkclient.metadata.tree import tree_of
from bkclient.wire.messages import AddRequest, Status
from simbookie.admin.answers import java_json
from simbookie.admin.endpoints import PROPERTIES_MAX
from simbookie.admin.server import ANSWERS
from simbookie.storage.base import Capacity
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.kinds import StoreKind
from tests.simbookie.admin.bench import Operated, operated
from tests.simbookie.storage.stores import entry

KEY = b"k" * 20
BOOKIE = "/api/v1/bookie"


async def added(it: Operated, ledger_id: int, entry_id: int, payload: bytes = b"payload") -> Status:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    body = entry(ledger_id, entry_id, payload)
    it.server.bookie.submit(AddRequest(ledger_id, entry_id, KEY, body[:32], body[32:]), done.set_result)
    status: Status = (await done).status
    return status


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.*") if path.suffix in (".txn", ".log", ".idx")}


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    while not await is_so():  # noqa: ASYNC110  nobody tells
        await asyncio.sleep(0.001)


def test_json_is_laid_out_as_bookkeepers() -> None:
    assert java_json({}) == "{ }"
    assert java_json([]) == "[ ]"
    assert java_json("\x0f\\\x1f\\u000f\n\u00e9") == '"\\u000F\\\\\\u001F\\\\u000f\\n\u00e9"'
    assert java_json({"a": 1, "b": None, "c": [1, "x"]}) == '{\n  "a" : 1,\n  "b" : null,\n  "c" : [ 1, "x" ]\n}'
    assert java_json([{"a": True, "b": {"c": {}}}]) == '[ {\n  "a" : true,\n  "b" : {\n    "c" : { }\n  }\n} ]'


async def test_what_is_no_path_and_what_no_method_is_not_found_and_not_allowed(tmp_path: Path) -> None:
    async with operated(tmp_path) as it:
        for path in ("/", "/heartbeat/x", "/api/v1/bookie", "/api/v2/bookie/state", "/../etc/passwd"):
            assert await it.asked("GET", path) == (404, "<html><body><h1>Resource not found</h1></body></html>")
        for method in ("PATCH", "OPTIONS", "TRACE"):
            assert (await it.asked(method, "/heartbeat"))[0] == 405
        assert await it.asked("GET", "/heartbeat") == (200, "OK\n")


@pytest.mark.parametrize("path", list(ANSWERS))
@pytest.mark.parametrize("body", [b"", b"no json", b"[1]", b'{"a": 1}', b"[" * 50_000, b"\xff\xfe"])
async def test_no_method_and_no_body_makes_a_path_fail(tmp_path: Path, path: str, body: bytes) -> None:
    async with operated(tmp_path) as it:
        it.subject.connect = None
        for method in ("GET", "PUT", "POST", "DELETE"):
            for query in ("", "?ledger_id=x&page=y&type=%00&enabled=maybe", "?ledger_id=99999999999999999999&page=-1"):
                status, text = await it.asked(method, path + query, body)
                assert status in (200, 400, 403, 404, 405, 500, 503)
                assert status != 500 or text, "an error that nobody thought of"


async def test_metrics_may_be_read_only(tmp_path: Path) -> None:
    async with operated(tmp_path) as it:
        assert await it.asked("PUT", "/metrics", b"") == (403, "PUT is forbidden. Should be GET method")
        assert "bookie_SERVER_STATUS 1.0\n" in (await it.asked("GET", "/metrics"))[1]


async def test_the_configuration_is_shown_and_what_is_set_is_shown_too(tmp_path: Path) -> None:
    path = "/api/v1/config/server_config"
    async with operated(tmp_path) as it:
        assert await it.told("GET", path) == {"bookiePort": "3181"}
        assert (await it.asked("PUT", path, b""))[0] == 404
        assert (await it.asked("DELETE", path))[0] == 404
        answer = await it.asked("PUT", path, json.dumps({"a": "x", "b": 2, "c": True}).encode())
        assert answer == (200, "Success set server config.")
        assert await it.told("GET", path) == {"a": "x", "b": "2", "bookiePort": "3181", "c": "true"}
        many = {str(number): 0 for number in range(PROPERTIES_MAX)}
        assert (await it.asked("PUT", path, json.dumps(many).encode()))[0] == 400
        assert len(await it.told("GET", path)) == 4


async def test_the_state_follows_the_bookie_and_read_only_mode_is_switched_by_hand(tmp_path: Path) -> None:
    async with operated(tmp_path) as it:
        lines = (await it.asked("GET", f"{BOOKIE}/state"))[1].splitlines()
        assert lines[:2] == ["{", '  "running" : true,']
        assert json.loads("".join(lines)) == {
            "running": True,
            "readOnly": False,
            "shuttingDown": False,
            "availableForHighPriorityWrites": True,
        }
        assert await it.told("GET", f"{BOOKIE}/state/readonly") == {"readOnly": False}
        assert await it.told("PUT", f"{BOOKIE}/state/readonly", {"readOnly": True}) == {"readOnly": True}
        assert (await it.told("GET", f"{BOOKIE}/state"))["readOnly"] is True
        assert await added(it, 1, 0) is Status.READ_ONLY
        assert (await it.asked("PUT", f"{BOOKIE}/state/readonly", b'{"readOnly": "yes"}'))[0] == 400
        assert await it.told("PUT", f"{BOOKIE}/state/readonly", {"readOnly": False}) == {"readOnly": False}
        assert await added(it, 1, 0) is Status.OK
        assert (await it.asked("DELETE", f"{BOOKIE}/state/readonly"))[0] == 404


async def test_a_mode_is_answered_when_clients_can_know_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with operated(tmp_path) as it:
        store, may_register, is_asked = it.subject.metadata, asyncio.Event(), asyncio.Event()
        register = store.register_bookie

        async def register_later(*arguments: Any, **options: Any) -> None:
            is_asked.set()
            await may_register.wait()
            await register(*arguments, **options)

        monkeypatch.setattr(store, "register_bookie", register_later)
        asking = asyncio.create_task(it.told("PUT", f"{BOOKIE}/state/readonly", {"readOnly": True}))
        await is_asked.wait()
        assert not (await asyncio.wait([asking], timeout=0.1))[0]
        may_register.set()
        assert await asking == {"readOnly": True}
        assert (await store.bookies()).read_only == ("b0",)


async def test_a_bookie_that_does_not_run_is_not_ready_and_not_sane(tmp_path: Path) -> None:
    async with operated(tmp_path) as it:
        assert await it.asked("GET", f"{BOOKIE}/is_ready") == (200, "OK")
        assert await it.told("GET", f"{BOOKIE}/sanity") == {"passed": True, "readOnly": False}
        assert it.server.bookie.ledger_ids() == []
        it.server.kill()
        assert await it.asked("GET", f"{BOOKIE}/is_ready") == (503, "Bookie is not fully started yet")
        assert await it.told("GET", f"{BOOKIE}/sanity") == {"passed": False, "readOnly": False}
        assert (await it.told("GET", f"{BOOKIE}/state"))["running"] is False
        assert "bookie_SERVER_STATUS -1.0\n" in (await it.asked("GET", "/metrics"))[1]
        assert await it.told("GET", f"{BOOKIE}/gc_details") == []


async def test_space_is_told(tmp_path: Path) -> None:
    async with operated(tmp_path) as it:
        told = await it.told("GET", f"{BOOKIE}/info")
        assert list(told) == ["freeSpace", "totalSpace"]
        assert 0 < told["freeSpace"] <= told["totalSpace"]


async def test_marks_and_files_are_those_on_disk(tmp_path: Path) -> None:
    async with operated(tmp_path) as it:
        assert await added(it, 1, 0) is Status.OK
        storage = it.server.bookie.storage
        assert isinstance(storage, JournaledStorage)
        assert storage.checkpoints is not None
        (mark,) = storage.checkpoints.persisted
        assert await it.told("GET", f"{BOOKIE}/last_log_mark") == {
            f"LastLogMark: Journal Id - {mark.file_id}({mark.file_id:x}.txn)": f"Pos - {mark.offset}"
        }
        files = await it.told("GET", f"{BOOKIE}/list_disk_file")
        names = names_in(tmp_path)
        assert list(files) == ["index files", "journal files", "entrylog files"]
        assert {name for each in files.values() for name in each.split("\t") if name} == names
        assert list(await it.told("GET", f"{BOOKIE}/list_disk_file?file_type=journal")) == ["journal files"]


async def test_compaction_is_suspended_and_resumed_and_garbage_collected_by_force(tmp_path: Path) -> None:
    async with operated(tmp_path) as it:
        suspend, resume = f"{BOOKIE}/gc/suspend_compaction", f"{BOOKIE}/gc/resume_compaction"
        assert await it.told("GET", suspend) == {"isMajorGcSuspended": "false", "isMinorGcSuspended": "false"}
        server = f"BookieServer: Bookie Server listening on 127.0.0.1:{it.server.port} with id b0"
        answer = await it.told("PUT", suspend, {"suspendMajor": True, "suspendMinor": True})
        assert answer == f"Suspend majorGC on {server}, Suspend minorGC on {server}"
        assert await it.told("GET", suspend) == {"isMajorGcSuspended": "true", "isMinorGcSuspended": "true"}
        assert await it.told("PUT", resume, {"resumeMinor": True}) == f", Resume minorGC on {server}"
        assert await it.told("GET", suspend) == {"isMajorGcSuspended": "true", "isMinorGcSuspended": "false"}
        for path, verb in ((suspend, "suspend"), (resume, "resume")):
            assert await it.asked("PUT", path, b"") == (400, "Empty request body")
            assert await it.asked("PUT", path, b"{}") == (400, f"No {verb}Major or {verb}Minor params found")
            assert (await it.asked("PUT", path, json.dumps({f"{verb}Major": 1}).encode()))[0] == 400
        assert (await it.asked("GET", resume))[0] == 404

        assert await it.asked("GET", f"{BOOKIE}/gc") == (200, '{\n  "is_in_force_gc" : "false"\n}')
        for body in (b"", b'{"test":1}', b'{"forceMajor":"true"}', b'{"forceMajor":false,"forceMinor":true}'):
            assert await it.asked("PUT", f"{BOOKIE}/gc", body) == (200, '"Triggered GC on BookieServer: b0"')
            while (await it.told("GET", f"{BOOKIE}/gc"))["is_in_force_gc"] == "true":
                pass
        text = "Failed to handle the request, exception: Failed to deserialize Object from Json string"
        assert await it.asked("PUT", f"{BOOKIE}/gc", b"test") == (400, text)
        (details,) = await it.told("GET", f"{BOOKIE}/gc_details")
        assert (details["majorCompactionCounter"], details["minorCompactionCounter"]) == (1, 3), (
            "suspended, but for force"
        )
        assert details["forceCompacting"] is False
        assert abs(details["lastMajorCompactionTime"] / 1000 - it.subject.wall_clock()) < 60


async def test_a_forced_run_takes_deleted_ledgers(tmp_path: Path) -> None:
    async with operated(tmp_path) as it:
        assert await added(it, 7, 0) is Status.OK
        await it.told("PUT", f"{BOOKIE}/gc")
        while it.server.bookie.ledger_ids():  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.001)
        assert "bookie_gc_DELETED_LEDGER_TOTAL 1.0\n" in (await it.asked("GET", "/metrics"))[1]


async def test_a_store_without_a_database_has_none_to_compact(tmp_path: Path) -> None:
    path = f"{BOOKIE}/entry_location_compact"
    async with operated(tmp_path) as it:
        assert await it.asked("GET", path) == (200, "{ }")
        assert await it.asked("PUT", path, b"") == (400, "Empty request body")
        answer = await it.asked("PUT", path, b'{"entryLocationRocksDBCompact": false}')
        assert answer == (200, "Not trigger Entry Location RocksDB compact.")
        body = b'{"entryLocationRocksDBCompact": true, "entryLocations": "/nowhere"}'
        assert (await it.asked("PUT", path, body))[0] == 400
        assert (await it.asked("PUT", path, b'{"entryLocationRocksDBCompact": true, "entryLocations": 1}'))[0] == 400
        assert (await it.asked("DELETE", path))[0] == 405


async def test_databases_of_locations_are_compacted_when_they_are_to(tmp_path: Path) -> None:
    path, place = f"{BOOKIE}/entry_location_compact", str(tmp_path / "ledgers/current/locations")
    async with operated(tmp_path, ledgerStorageClass=StoreKind.DB.class_name) as it:

        async def is_idle() -> bool:
            return bool(await it.told("GET", path) == {place: False})

        assert await is_idle()
        for number, body in enumerate(({}, {"entryLocations": place}), start=1):
            answer = await it.told("PUT", path, {"entryLocationRocksDBCompact": True, **body})
            assert answer.startswith("Triggered entry Location RocksDB")
            assert (await it.told("PUT", path, {"entryLocationRocksDBCompact": True})).startswith("Triggered"), "twice"
            await until(is_idle)
            (details,) = await it.told("GET", f"{BOOKIE}/gc_details")
            assert number <= details["entryLocationCompactionCounter"] <= 2 * number
            assert abs(details["lastEntryLocationCompactionTime"] / 1000 - it.subject.wall_clock()) < 60
        status, text = await it.asked("PUT", path, b'{"entryLocationRocksDBCompact": true, "entryLocations": "/a,/b"}')
        assert (status, f"RocksDB path: [{place}]." in text) == (400, True)
        await it.told("PUT", path, {"entryLocationRocksDBCompact": True})  # and the bookie ends meanwhile


async def test_ledgers_are_listed_told_read_and_deleted(tmp_path: Path) -> None:
    async with operated(tmp_path) as it:
        assert it.subject.connect is not None
        async with it.subject.connect() as client:
            writer = await client.create_ledger(
                ensemble_size=1, write_quorum_size=1, ack_quorum_size=1, password=b"secret", custom_metadata={"a": b"b"}
            )
            for number in range(5):
                await writer.append(b"entry %d" % number)
            await writer.close()
            ledger_id = writer.ledger_id
        assert await it.told("GET", "/api/v1/ledger/list") == {str(ledger_id): None}
        told = (await it.told("GET", f"/api/v1/ledger/metadata?ledger_id={ledger_id}"))[str(ledger_id)]
        assert {name: told[name] for name in ("state", "lastEntryId", "closed", "password", "customMetadata")} == {
            "state": "CLOSED",
            "lastEntryId": 4,
            "closed": True,
            "password": "c2VjcmV0",
            "customMetadata": {"a": "Yg=="},
        }
        assert told["allEnsembles"] == {"0": [{"id": "b0"}]}
        listed = await it.told("GET", "/api/v1/ledger/list?print_metadata=true&decode_meta=true&page=1")
        assert listed == {str(ledger_id): told}
        assert (await it.told("GET", "/api/v1/ledger/list?print_metadata=true&page=2")) == {}
        assert "secret" in (await it.told("GET", "/api/v1/ledger/list?print_metadata=true"))[str(ledger_id)]

        read = f"/api/v1/ledger/read?ledger_id={ledger_id}"
        assert await it.told("GET", read) == {str(number): f"entry {number}" for number in range(5)}
        assert await it.told("GET", f"{read}&start_entry_id=1&end_entry_id=2") == {"1": "entry 1", "2": "entry 2"}
        assert (await it.told("GET", f"{read}&page=1"))["Entries for page: "] == "1"
        assert (await it.asked("GET", f"{read}&start_entry_id=9&page=1&end_entry_id=3"))[0] == 500
        assert (await it.asked("GET", "/api/v1/ledger/read"))[0] == 404
        assert (await it.asked("GET", "/api/v1/ledger/metadata?ledger_id=12345"))[0] == 500

        assert await it.told("DELETE", f"/api/v1/ledger/delete?ledger_id={ledger_id}") == f"Deleted ledger: {ledger_id}"
        assert await it.told("GET", "/api/v1/ledger/list") == {}
        assert (await it.asked("DELETE", "/api/v1/ledger/delete?ledger_id=-1"))[0] == 400
        assert (await it.asked("DELETE", "/api/v1/ledger/delete"))[0] == 404


async def test_bookies_are_listed_with_hosts_and_space(tmp_path: Path) -> None:
    async with operated(tmp_path) as it:
        assert await it.told("GET", f"{BOOKIE}/list_bookies") == {"b0": None}
        assert await it.told("GET", f"{BOOKIE}/list_bookies?print_hostnames=true") == {"b0": "127.0.0.1"}
        assert await it.told("GET", f"{BOOKIE}/list_bookies?type=ro") == {}
        capacity: Capacity = it.server.bookie.storage.capacity()
        told = await it.told("GET", f"{BOOKIE}/list_bookie_info")
        assert list(told) == ["b0", "ClusterInfo: "]
        assert told["b0"].endswith("},")
        assert f"Total: {capacity.total}(" in told["ClusterInfo: "]
        info = await it.told("GET", f"{BOOKIE}/cluster_info")
        assert (info["writableBookiesCount"], info["readonlyBookiesCount"], info["auditorElected"]) == (1, 0, False)
        it.server.kill()
        assert await it.asked("GET", f"{BOOKIE}/list_bookie_info") == (404, "Not found any Bookie info.")


async def test_auto_recovery_is_looked_at_and_switched(tmp_path: Path) -> None:
    base = "/api/v1/autorecovery"
    async with operated(tmp_path) as it:
        assert await it.told("GET", f"{base}/status") == {"enabled": True}
        assert await it.told("PUT", f"{base}/status?enabled=false") == {"enabled": False}
        assert await it.asked("PUT", f"{base}/status?on=1") == (400, "Param 'enabled' not found in {on=1}")
        assert await it.told("PUT", f"{base}/status?enabled=true") == {"enabled": True}
        assert await it.asked("GET", f"{base}/who_is_auditor") == (404, "No auditor elected")
        delay = f"{base}/lost_bookie_recovery_delay"
        assert (await it.asked("GET", delay))[0] == 404
        assert (await it.asked("PUT", delay, b'{"delay_seconds": -1}'))[0] == 400
        assert await it.asked("PUT", delay, b'{"delay_seconds": 17}') == (
            200,
            "Success set lostBookieRecoveryDelay to 17",
        )
        assert await it.asked("GET", delay) == (200, "lostBookieRecoveryDelay value: 17")
        assert await it.asked("PUT", f"{base}/trigger_audit") == (200, "Success trigger audit.")
        marked = f"{base}/list_under_replicated_ledger"
        assert await it.asked("GET", marked) == (404, "No under replicated ledgers found")


async def test_a_bookie_is_recovered_after_the_answer(tmp_path: Path) -> None:
    base = "/api/v1/autorecovery"
    async with operated(tmp_path) as it:
        tree = tree_of(it.subject.metadata)

        async def is_forgotten() -> bool:
            return not await tree.children("cookies")

        await tree.create("cookies/gone", b"5\n")
        body = json.dumps({"bookie_src": ["gone"], "delete_cookie": True}).encode()
        assert await it.asked("PUT", f"{base}/bookie", body) == (200, "Success send recovery request command.")
        await until(is_forgotten)
        assert (await it.asked("PUT", f"{base}/bookie", b'{"bookie_src": "gone"}'))[0] == 404
        assert (await it.asked("PUT", f"{base}/bookie", b'{"bookie_src": ["a/b"]}'))[0] == 400
        await tree.create("cookies/gone", b"5\n")
        body = json.dumps({"bookie_src": "gone", "delete_cookie": "true"}).encode()
        answer = await it.asked("PUT", f"{base}/decommission", body)
        assert answer == (200, "Success send decommission Bookie command gone")
        await until(is_forgotten)


async def test_jobs_are_done_one_after_the_other_and_too_many_are_refused(tmp_path: Path) -> None:
    begun: list[int] = []

    async def job() -> None:
        begun.append(len(begun))
        await asyncio.Event().wait()

    async with operated(tmp_path) as it:
        body = json.dumps({"bookie_src": "b0"}).encode()
        while it.subject.jobs.begin("waiting", job):  # noqa: ASYNC110  not a wait
            await asyncio.sleep(0)
        assert (await it.asked("PUT", "/api/v1/autorecovery/decommission", body))[0] == 503
    assert begun == [0]

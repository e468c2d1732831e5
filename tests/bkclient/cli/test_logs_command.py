"""Commands about logs."""

from __future__ import annotations

import base64

import pytest

from bkclient import BookKeeper
from bkclient.log import Logs, MessageId
from tests.bkclient.cli.cluster import ThreadedCluster
from tests.bkclient.cli.invoking import Invoke


def test_what_is_published_is_read_with_its_ids(bk: Invoke) -> None:
    assert bk("log", "create", "a", "--max-entries", "2", "--min-age-s", "0", "--json").json == {"log": "a"}
    published = bk("log", "publish", "a", "--key", "k", "--print-ids", stdin=b"one\ntwo\nthree\n")
    ids = published.text.split()
    assert (published.code, len(ids)) == (0, 3)
    assert bk("log", "publish", "a", "--compression", "zlib", "--json", stdin=b"four\n").json == {
        "log": "a",
        "messages": 1,
        "epoch": 2,
    }
    assert bk("log", "read", "a").text.split() == ["one", "two", "three", "four"]
    assert bk("log", "read", "a", "--start", ids[1], "--count", "2").text.split() == ["two", "three"]
    assert bk("log", "read", "a", "--start-ms", "99999999999999").text == ""
    assert bk("log", "tail", "a", "--start", ids[0], "--count", "4").text.split()[-1] == "four"
    first = bk("log", "read", "a", "--count", "1", "--json").json
    assert base64.b64decode(first["payload"]) == b"one"
    assert (first["id"], first["key"], first["eventMs"]) == (ids[0], "k", None)


def test_a_log_is_shown_and_trimmed(bk: Invoke) -> None:
    bk("log", "create", "b", "--retention-bytes", "0")
    for _ in range(2):
        bk("log", "publish", "b", stdin=b"x\n")
    shown = bk("log", "info", "b", "--json").json
    assert (shown["log"], shown["epoch"], shown["owner"], shown["cursors"]) == ("b", 2, None, [])
    assert [ledger["entries"] for ledger in shown["ledgers"]] == [1, 1]
    last = shown["ledgers"][1]["ledgerId"]
    assert f"ledger {last}: 1 entries" in bk("log", "info", "b").text
    assert bk("log", "trim", "b", "--before", f"{last}:0", "--json").json["ledgers"] == [
        shown["ledgers"][0]["ledgerId"]
    ]
    assert "1 ledgers deleted" in bk("log", "trim", "b").text
    assert bk("log", "cursors", "b", "--remove", "none").text == ""


@pytest.mark.parametrize("command", ["publish", "read", "tail", "info", "trim", "cursors", "check", "compact", "set"])
def test_a_log_that_does_not_exist_is_a_no(bk: Invoke, command: str) -> None:
    ended = bk("log", command, "missing")
    assert ended.code == 1
    assert "missing" in ended.stderr


def test_wrong_usage_is_told(bk: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    bk("log", "create", "c")
    assert bk("log", "create", "c").code == 4
    assert bk("log", "create", "a/b").code == 2
    assert bk("log", "publish", "c", "--compression", "lz").code == 2
    monkeypatch.setattr("bkclient.log.format.compression._module", lambda _: None)
    missing = bk("log", "publish", "c", "--compression", "zstd", stdin=b"x\n")
    assert (missing.code, "needs zstandard" in missing.stderr) == (2, True)
    assert bk("log", "read", "c", "--start", "x").code == 2
    assert bk("log", "read", "c", "--start", "0:0", "--start-ms", "1").code == 2


def test_logs_are_listed_and_deleted(bk: Invoke) -> None:
    for name in ("d1", "d2"):
        bk("log", "create", name)
    bk("log", "publish", "d1", stdin=b"x\ny\n")
    found = {each["log"]: each for each in bk("log", "list", "--json").objects}
    assert {name: found["d1"][name] for name in ("ledgers", "entries", "owner", "cursors")} == {
        "ledgers": 1,
        "entries": 1,
        "owner": None,
        "cursors": 0,
    }
    assert "d2\t0 ledgers\t0 entries\tno owner" in bk("log", "list").text
    assert bk("log", "delete", "d2", stdin=b"n\n").code == 1
    assert bk("log", "delete", "d2", "--json").code == 2
    assert bk("log", "delete", "d2", stdin=b"y\n").code == 0
    assert bk("log", "delete", "d2", "--force", "--json").json == {"deleted": []}
    assert bk("log", "delete", "d2", "d1", "--force", "--json").json == {"deleted": ["d1"]}
    missing = bk("log", "delete", "d1", stdin=b"y\n")
    assert (missing.code, "no log d1" in missing.stderr) == (1, True)


def test_a_log_is_checked(bk: Invoke) -> None:
    bk("log", "create", "e", "--max-entries", "1", "--min-age-s", "0")
    for line in (b"x\n", b"y\n"):
        bk("log", "publish", "e", stdin=line)
    reports = bk("log", "check", "e", "--thorough", "--json").objects
    assert [(each["log"], each["sound"], each["open"], each["problems"]) for each in reports] == [
        ("e", True, False, [])
    ] * 2
    assert all(each["copiesChecked"] for each in reports)
    gone = reports[0]["ledgerId"]
    assert bk("ledger", "delete", str(gone), "--force").code == 0
    ended = bk("log", "check", "e")
    assert ended.code == 1
    assert f"ledger {gone}: not found" in ended.text
    assert "1 of 2 ledgers" in ended.stderr
    assert [each["sound"] for each in bk("log", "check", "e", "--json").objects] == [False, True]


def test_a_log_with_partitions_is_used_as_one(bk: Invoke) -> None:
    bk("log", "create", "p", "--partitions", "2", "--max-entries", "1", "--min-age-s", "0")
    for key in ("k1", "k2", "k1"):
        bk("log", "publish", "p", "--key", key, stdin=b"x\n")
    read = bk("log", "read", "p", "--json").objects
    assert sorted((each["key"], each["id"].split(":")[2]) for each in read) == [("k1", "0"), ("k1", "0"), ("k2", "0")]
    bk("log", "publish", "p", "--print-ids", stdin=b"y\nz\n")
    assert sorted(bk("log", "read", "p-partition-1").text.split()) == []
    shown = bk("log", "info", "p", "--json").json
    assert [part["log"] for part in shown["partitions"]] == ["p-partition-0", "p-partition-1"]
    assert "p-partition-1: 0 ledgers, 0 entries" in bk("log", "info", "p").text
    listed = next(each for each in bk("log", "list", "--json").objects if each["log"] == "p")
    assert (listed["partitions"], listed["ledgers"], listed["entries"]) == (2, 4, 4)
    assert {each["log"] for each in bk("log", "check", "p", "--json").objects} == {"p-partition-0"}
    last = read[-1]["id"]
    assert bk("log", "read", "p", "--start", last, "--count", "1", "--json").json["id"] == last
    assert len(bk("log", "trim", "p", "--before", last, "--json").json["ledgers"]) == 2
    assert bk("log", "read", "p", "--start", "1:0").code == 2
    assert bk("log", "publish", "p-partition-0", stdin=b"x\n").code == 4
    assert bk("log", "delete", "p-partition-0", "--force").code == 4
    assert bk("log", "delete", "p", "--force").code == 0


def test_a_log_is_compacted(bk: Invoke) -> None:
    bk("log", "create", "q")
    for line in (b"x\n", b"y\n"):
        bk("log", "publish", "q", "--key", "k", stdin=line)
    assert bk("log", "compact", "q", "--compression", "zlib", "--json").json == {"log": "q", "messages": 1}
    assert "1 messages are left" in bk("log", "compact", "q").text
    assert bk("log", "read", "q", "--compacted").text == "y\n"
    assert bk("log", "read", "q").text == "x\ny\n"
    assert bk("log", "read", "q", "--compacted", "--start-ms", "1").code == 2
    assert bk("log", "compact", "q", "--compression", "rar").code == 2
    assert len(bk("log", "check", "q", "--json").objects) == 3


def test_settings_of_a_log_are_changed_and_shown(bk: Invoke) -> None:
    bk("log", "create", "s", "--retention-s", "60")
    changed = bk("log", "set", "s", "--max-entries", "7", "--retention-bytes", "1000", "--json").json
    assert (changed["log"], changed["settings"]["max_ledger_entries"], changed["settings"]["retention_s"]) == (
        "s",
        7,
        60.0,
    )
    bk("log", "set", "s", "--retention-s", "none", "-e", "4")
    lines = bk("log", "set", "s").text.splitlines()
    assert {"max_ledger_entries\t7", "retention_s\tnone", "retention_bytes\t1000", "ensemble_size\t4"} <= {*lines}
    assert bk("log", "set", "s", "--retention-s", "long").code == 2
    assert bk("log", "set", "s", "--ack-quorum", "9").code == 2


async def make_cursor(client: BookKeeper) -> None:
    """A cursor of log ``t`` that has acknowledged everything."""
    async with Logs(client).cursor("t", "made", MessageId.LATEST):
        pass


def test_a_cursor_is_reset(bk: Invoke, cluster: ThreadedCluster) -> None:
    bk("log", "create", "t", "--max-entries", "1", "--min-age-s", "0")
    ids = [bk("log", "publish", "t", "--print-ids", stdin=b"x\n").text.strip() for _ in range(3)]
    cluster.with_client(make_cursor)

    def backlog(*options: str) -> int:
        found: int = bk("log", "cursors", "t", *options, "--json").json["backlogEntries"]
        return found

    assert backlog() == 0
    assert backlog("--reset", "made", "--start", ids[1]) == 2
    assert backlog("--reset", "made", "--start", "earliest") == 3
    assert backlog("--reset", "made", "--start-ms", str(2**52)) == 0
    assert bk("log", "cursors", "t", "--remove", "made").text == ""
    assert bk("log", "cursors", "t", "--reset", "made", "--start", ids[0]).code == 4
    for options in (("--reset", "c"), ("--start", ids[0]), ("--reset", "c", "--start", ids[0], "--start-ms", "1")):
        assert bk("log", "cursors", "t", *options).code == 2


def test_what_was_trimmed_and_compacted_is_shown(bk: Invoke) -> None:
    bk("log", "create", "u", "--max-entries", "1", "--min-age-s", "0")
    for line in (b"x\n", b"y\n"):
        bk("log", "publish", "u", "--key", "k", stdin=line)
    before = bk("log", "info", "u", "--json").json
    assert (before["compacted"], before["compacting"], before["trimmed"], before["dropped"]) == (None, None, [], [])
    first, second = (ledger["ledgerId"] for ledger in before["ledgers"])
    bk("log", "compact", "u")
    assert bk("log", "trim", "u", "--before", "latest", "--json").json["ledgers"] == [first, second]
    shown = bk("log", "info", "u", "--json").json
    assert shown["trimmedThrough"] == second
    made = shown["compacted"]
    assert (made["throughLedgerId"], made["throughEntryId"], made["messages"]) == (second, 0, 1)
    text = bk("log", "info", "u").text
    assert f"trimmed through ledger {second}" in text
    assert f"compacted through {second}:0, to 1 messages in ledger {made['ledgerId']}" in text
    assert bk("log", "read", "u", "--start", "earliest", "--compacted").text == "y\n"


def test_a_ledger_that_is_lost_is_given_up(bk: Invoke) -> None:
    bk("log", "create", "v", "--max-entries", "1", "--min-age-s", "0")
    for line in (b"x\n", b"y\n"):
        bk("log", "publish", "v", stdin=line)
    lost = str(bk("log", "info", "v", "--json").json["ledgers"][0]["ledgerId"])
    assert bk("log", "drop-ledger", "v", lost, "--force").code == 4
    assert bk("ledger", "delete", lost, "--force").code == 0
    assert bk("log", "read", "v").code == 1
    assert bk("log", "drop-ledger", "v", lost, stdin=b"n\n").code == 1
    assert bk("log", "drop-ledger", "v", lost, "--json").code == 2
    given_up = bk("log", "drop-ledger", "v", lost, "--force", "--json").json
    assert (given_up["log"], given_up["ledgerId"], given_up["entries"]) == ("v", int(lost), 1)
    assert bk("log", "read", "v").text == "y\n"
    assert bk("log", "drop-ledger", "v", "99999", "--force").code == 4

"""``append``, ``read`` and ``tail`` inside this process."""

from __future__ import annotations

import asyncio
import base64
import io
import threading
from typing import Any

import pytest

from bkclient import BookKeeper, LedgerState
from bkclient.cli.framing import Framing, OutputFormat, splitter
from bkclient.cli.ledger_data import Ids, append_from, follow
from bkclient.cli.streams import ByteSink, ByteSource
from tests.bkclient.cli.cluster import ThreadedCluster
from tests.bkclient.cli.invoking import Invoke, invoke_at
from tests.end_to_end.loopback import Loopback


def payloads(cluster: ThreadedCluster, ledger_id: int, password: bytes = b"") -> list[bytes]:
    async def story(client: BookKeeper) -> list[bytes]:
        reader = await client.open_ledger(ledger_id, password=password, recover=True)
        return [entry.payload async for entry in reader]

    return cluster.with_client(story)


def test_each_line_becomes_an_entry_and_the_ledger_is_closed(bk: Invoke, cluster: ThreadedCluster) -> None:
    appended = bk("ledger", "append", "--create", "--json", stdin=b"one\n\nthree")

    assert appended.code == 0
    assert appended.stderr == ""
    ledger_id = appended.json["ledgerId"]
    assert appended.json == {"ledgerId": ledger_id, "entries": 3, "bytes": 8, "lastEntryId": 2}
    assert payloads(cluster, ledger_id) == [b"one", b"", b"three"]
    assert bk("ledger", "info", str(ledger_id), "--json").json["state"] == "CLOSED"


def test_the_summary_for_people_says_entries_bytes_and_last_entry(bk: Invoke) -> None:
    appended = bk("ledger", "append", "--create", "--ledger-id", "500", stdin=b"one\ntwo\n")

    assert appended.text == "ledger 500: 2 entries, 6 bytes, last entry 1\n"


def test_appending_nothing_makes_an_empty_closed_ledger(bk: Invoke) -> None:
    assert bk("ledger", "append", "--create", "501").text == "ledger 501: 0 entries, 0 bytes, last entry -1\n"


def test_many_entries_are_appended_and_their_ids_printed_in_order(bk: Invoke, cluster: ThreadedCluster) -> None:
    lines = [b"line %d" % number for number in range(5000)]

    appended = bk(
        *("ledger", "append", "--create", "--print-ids", "-c", "limits.max_in_flight_entries=100", "502"),
        stdin=b"\n".join(lines),
    )

    assert appended.code == 0
    assert appended.stdout == b"".join(b"%d\n" % number for number in range(5000))
    assert appended.stderr.startswith("ledger 502: 5000 entries")
    assert payloads(cluster, 502) == lines


def test_ids_in_json_are_objects_of_their_own_before_the_summary(bk: Invoke) -> None:
    appended = bk("ledger", "append", "--create", "503", "--print-ids", "--json", stdin=b"one\ntwo\n")

    assert appended.objects == [
        {"entryId": 0},
        {"entryId": 1},
        {"ledgerId": 503, "entries": 2, "bytes": 6, "lastEntryId": 1},
    ]


def test_the_input_may_be_one_entry(bk: Invoke, cluster: ThreadedCluster) -> None:
    assert bk("ledger", "append", "--create", "--whole", "504", stdin=b"a\nb\n").code == 0
    assert payloads(cluster, 504) == [b"a\nb\n"]


def test_what_read_writes_length_prefixed_append_takes(bk: Invoke, cluster: ThreadedCluster) -> None:
    original = [b"", b"a\nb", bytes(range(256))]
    ledger_id = cluster.ledger(*original)

    copy = bk("ledger", "read", str(ledger_id), "--output", "length-prefixed")
    assert bk("ledger", "append", "--create", "--length-prefixed", "505", stdin=copy.stdout).code == 0
    assert payloads(cluster, 505) == original


def test_the_new_ledger_is_as_the_options_say(bk: Invoke, cluster: ThreadedCluster) -> None:
    appended = bk(
        *(
            "ledger",
            "append",
            "506",
            "--create",
            "-e",
            "3",
            "-w",
            "3",
            "-a",
            "3",
            "--digest",
            "CRC32",
            "--custom",
            "k=v",
        ),
        stdin=b"x",
        BK_LEDGER_PASSWORD="secret",
    )

    assert appended.code == 0
    found = bk("ledger", "info", "506", "--json").json
    assert (found["writeQuorumSize"], found["ackQuorumSize"], found["digestType"]) == (3, 3, "CRC32")
    assert found["customMetadata"] == {"k": base64.b64encode(b"v").decode()}
    assert payloads(cluster, 506, b"secret") == [b"x"]


def test_with_deferred_sync_everything_is_durable_in_the_end(bk: Invoke, cluster: ThreadedCluster) -> None:
    appended = bk("ledger", "append", "507", "--create", "--deferred-sync", "--json", stdin=b"one\ntwo\n")

    assert (appended.code, appended.json["lastEntryId"]) == (0, 1)
    assert payloads(cluster, 507) == [b"one", b"two"]


@pytest.mark.parametrize("arguments", [["0"], []])
def test_a_ledger_that_exists_cannot_be_appended_to_and_the_error_says_why(bk: Invoke, arguments: list[str]) -> None:
    refused = bk("ledger", "append", *arguments, stdin=b"one\n")

    assert refused.code == 2
    assert "only the creator of a ledger can write to it" in " ".join(refused.stderr.replace("│", "").split())
    assert refused.stdout == b""


def test_an_id_that_is_taken_is_refused_before_anything_is_read(bk: Invoke, cluster: ThreadedCluster) -> None:
    ledger_id = cluster.ledger(b"mine")

    assert bk("ledger", "append", "--create", str(ledger_id), stdin=b"theirs").code == 4
    assert payloads(cluster, ledger_id) == [b"mine"]


@pytest.mark.parametrize("sync", [[], ["--deferred-sync"]], ids=["sync", "deferred"])
@pytest.mark.parametrize("framing", ["--whole", "--length-prefixed"])
def test_input_that_cannot_be_used_ends_the_ledger_at_what_was_appended(
    bk: Invoke, cluster: ThreadedCluster, framing: str, sync: list[str]
) -> None:
    refused = bk(
        *("ledger", "append", "--create", framing, "--json", "-c", "nettyMaxFrameSizeBytes=2000", *sync),
        stdin=b"\0\0\0\3one\0\0\7\xff" + bytes(2047),
    )

    assert refused.code == 2
    assert refused.json["error"]["type"] == "ArgumentError"
    *_, told, _ = refused.stderr.splitlines()
    assert "not everything was appended" in told
    assert "is closed" in told
    ledger_id = int(told.split("ledger ")[1].split()[0])
    assert payloads(cluster, ledger_id) == ([b"one"] if framing == "--length-prefixed" else [])


def test_entries_are_printed_as_lines_raw_hex_or_json(bk: Invoke, cluster: ThreadedCluster) -> None:
    ledger_id = str(cluster.ledger(b"one", b"two\n", b"\xff"))

    assert bk("ledger", "read", ledger_id).stdout == b"one\ntwo\n\n\xff\n"
    assert bk("ledger", "read", ledger_id, "-o", "raw").stdout == b"onetwo\n\xff"
    assert bk("ledger", "read", ledger_id, "-o", "hex").stdout == b"0 6f6e65\n1 74776f0a\n2 ff\n"
    objects = bk("ledger", "read", ledger_id, "--json").objects
    assert [(found["entryId"], found["length"], base64.b64decode(found["payload"])) for found in objects] == [
        (0, 3, b"one"),
        (1, 7, b"two\n"),
        (2, 8, b"\xff"),
    ]
    assert bk("ledger", "read", ledger_id, "-o", "json").objects == objects


def test_a_range_of_entries_can_be_chosen(bk: Invoke, cluster: ThreadedCluster) -> None:
    ledger_id = str(cluster.ledger(*(b"%d" % number for number in range(10))))

    assert bk("ledger", "read", ledger_id, "--first", "7").text.split() == ["7", "8", "9"]
    assert bk("ledger", "read", ledger_id, "--last", "1").text.split() == ["0", "1"]
    assert bk("ledger", "read", ledger_id, "--first", "3", "--last", "3").text.split() == ["3"]


@pytest.mark.parametrize("range_", [["--first", "3"], ["--last", "3"], ["--first", "2", "--last", "1"]])
def test_entries_that_are_not_there_are_a_negative_answer(
    bk: Invoke, cluster: ThreadedCluster, range_: list[str]
) -> None:
    refused = bk("ledger", "read", str(cluster.ledger(b"0", b"1", b"2")), *range_)

    assert refused.code == 1
    assert "its last confirmed entry is 2" in refused.stderr
    assert refused.stdout == b""


def test_an_empty_ledger_is_printed_as_nothing(bk: Invoke, cluster: ThreadedCluster) -> None:
    outcome = bk("ledger", "read", str(cluster.ledger()))

    assert (outcome.code, outcome.stdout) == (0, b"")


def test_reading_disturbs_no_writer_unless_told_to(bk: Invoke, cluster: ThreadedCluster) -> None:
    ledger_id = cluster.ledger(b"one", b"two", close=False)

    assert bk("ledger", "read", str(ledger_id)).stdout == b"one\n"  # the news of the second entry come with a third
    assert bk("ledger", "info", str(ledger_id), "--json").json["state"] == "OPEN"
    assert bk("ledger", "read", str(ledger_id), "--recover").stdout == b"one\ntwo\n"
    assert bk("ledger", "info", str(ledger_id), "--json").json["state"] == "CLOSED"


def test_reading_what_no_bookie_holds_is_not_available_and_prints_what_came_before() -> None:
    with ThreadedCluster(1) as lonely:
        bk = invoke_at(lonely)
        made = bk("ledger", "append", "--create", "1", "-e", "1", "-w", "1", "-a", "1", stdin=b"one\ntwo")
        assert made.code == 0
        lonely.run(lonely.bookies.kill(lonely.bookies.bookie_ids[0]))

        refused = bk("ledger", "read", "1", "-c", "readEntryTimeoutSec=1")
        assert refused.code == 3
        assert "BOOKIE_NOT_AVAILABLE" in refused.stderr
        assert bk("ledger", "info", "1").code == 0


def test_appending_to_bookies_that_are_full_is_not_available_and_says_that_they_are_read_only() -> None:
    with ThreadedCluster(3) as full:
        bk = invoke_at(full)
        bookies = [full.bookies.bookie(bookie_id) for bookie_id in full.bookies.bookie_ids]
        for bookie in bookies:
            bookie._read_only = True  # it has just become full, and is not registered as that yet

        refused = bk("ledger", "append", "--create", stdin=b"one\ntwo\n")
        assert refused.code == 3
        assert "The bookie is read-only" in refused.stderr
        assert "Retry once the bookie has space again" in refused.stderr
        assert "Start more bookies" not in refused.stderr
        many = bk("ledger", "append", "--create", "--json", stdin=b"line\n" * 10_000)
        assert (many.code, many.json["error"]["type"]) == (3, "NotEnoughBookies")
        assert "read-only" in many.json["error"]["message"]

        async def register() -> None:
            for bookie in bookies:
                bookie._read_only = False
                bookie.set_read_only(True)
            while len((await full._store.bookies()).read_only) < len(bookies):  # noqa: ASYNC110 - bookies tell nobody
                await asyncio.sleep(0.01)

        full.run(register())
        unmade = bk("ledger", "append", "--create", stdin=b"one\n")
        assert unmade.code == 3
        assert "read-only are: " in unmade.stderr
        assert all(bookie_id in unmade.stderr for bookie_id in full.bookies.bookie_ids)
        assert "Retry once the bookie has space again" in unmade.stderr


# The same in one loop with a writer -----------------------------------------------------------------------------------


def test_a_closed_ledger_is_followed_to_its_end(bk: Invoke, cluster: ThreadedCluster) -> None:
    outcome = bk("ledger", "tail", str(cluster.ledger(b"one", b"two")), "--until-closed")

    assert (outcome.code, outcome.stdout) == (0, b"one\ntwo\n")


async def test_an_open_ledger_is_followed_until_its_writer_closes_it() -> None:
    async with Loopback(3) as loopback:
        writing, reading = await loopback.client(), await loopback.client()
        writer = await writing.create_ledger()
        await writer.append(b"0")
        printed = io.BytesIO()
        async with await reading.open_ledger(writer.ledger_id, recover=False) as reader:
            following = asyncio.create_task(follow(reader, 0, ByteSink(printed), OutputFormat.LINES, 10.0))
            for number in range(1, 50):
                await writer.append(b"%d" % number)
                if number == 25:
                    async with asyncio.timeout(10):
                        while b"24\n" not in printed.getvalue():  # noqa: ASYNC110  another task prints
                            await asyncio.sleep(0.001)
            assert not following.done()
            await writer.close()
            await asyncio.wait_for(following, 10)
        assert printed.getvalue() == b"".join(b"%d\n" % number for number in range(50))


async def test_a_ledger_may_be_followed_from_somewhere_in_the_middle() -> None:
    async with Loopback(3) as loopback:
        client = await loopback.client()
        async with await client.create_ledger() as writer:
            for number in range(5):
                await writer.append(b"%d" % number)
        printed = io.BytesIO()
        reader = await client.open_ledger(writer.ledger_id, recover=False)
        await follow(reader, 3, ByteSink(printed), OutputFormat.LINES, 10.0)
        await follow(reader, 9, ByteSink(printed), OutputFormat.LINES, 10.0)
        assert printed.getvalue() == b"3\n4\n"


async def test_an_append_that_is_interrupted_closes_the_ledger_at_what_was_confirmed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Loopback(3) as loopback:
        client = await loopback.client()
        writer = await client.create_ledger()
        source = EndlessSource(b"one\ntwo\n")
        appending = asyncio.create_task(append_from(source, writer, splitter(Framing.LINES, 100)))
        await asyncio.wait_for(source.is_waiting.wait(), 10)
        await writer.flush()
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending

        assert (await client.ledger_metadata(writer.ledger_id)).state is LedgerState.CLOSED
        assert f"ledger {writer.ledger_id} is closed, last entry 1" in capsys.readouterr().err


class SlowStream(io.BytesIO):
    """Takes what is written to it when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.is_stuck = threading.Event()

    def write(self, data: Any) -> int:
        self.is_stuck.set()
        assert self.may_go_on.wait(10)
        return super().write(data)


async def test_an_id_that_is_confirmed_while_another_is_printed_is_printed_without_waiting_for_a_third() -> None:
    async with Loopback(3) as loopback:
        writer = await (await loopback.client()).create_ledger()
        stream = SlowStream()
        ids = Ids(ByteSink(stream), as_json=False)
        first = writer.append_nowait(b"x")
        first.add_done_callback(ids.confirmed)
        await asyncio.to_thread(stream.is_stuck.wait, 10)
        second = writer.append_nowait(b"y")
        second.add_done_callback(ids.confirmed)
        await writer.flush()
        await asyncio.sleep(0)
        stream.may_go_on.set()
        async with asyncio.timeout(10):
            while stream.getvalue() != b"0\n1\n":  # noqa: ASYNC110  a thread prints
                await asyncio.sleep(0.001)


class EndlessSource(ByteSource):
    """Gives its data once and then never ends."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.is_waiting = asyncio.Event()
        self._data = data

    async def read(self) -> bytes:
        if self._data:
            data, self._data = self._data, b""
            return data
        self.is_waiting.set()
        await asyncio.Event().wait()
        return b""

"""Commands about ledgers as such: create, info, list, recover, delete; and bookies."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from bkclient import BookKeeper, LedgerState
from tests.bkclient.cli.cluster import ThreadedCluster
from tests.bkclient.cli.invoking import Invoke, invoke_at


def test_creating_prints_the_id_and_leaves_an_open_ledger(bk: Invoke) -> None:
    created = bk("ledger", "create")

    assert (created.code, created.stderr) == (0, "")
    found = bk("ledger", "info", created.text.strip(), "--json").json
    assert found["ledgerId"] == int(created.text)
    assert found["state"] == "OPEN"


def test_every_option_of_create_is_in_the_metadata(bk: Invoke, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"open sesame\n")
    created = bk(
        *("ledger", "create", "--ledger-id", "4711", "-e", "3", "-w", "3", "-a", "2", "--digest", "mac"),
        *(
            "--custom",
            "owner=me",
            "--custom",
            "note=a=b",
            "--password-file",
            str(tmp_path / "secret"),
            "--close",
            "--json",
        ),
    )

    assert created.code == 0
    ensembles = created.json.pop("allEnsembles")
    assert {key: value for key, value in created.json.items() if key != "allEnsembles"} == {
        "ledgerId": 4711,
        "metadataFormatVersion": 3,
        "state": "CLOSED",
        "lastEntryId": -1,
        "length": 0,
        "ensembleSize": 3,
        "writeQuorumSize": 3,
        "ackQuorumSize": 2,
        "digestType": "HMAC",
        "hasPassword": True,
        "ctime": None,
        "customMetadata": {"owner": base64.b64encode(b"me").decode(), "note": base64.b64encode(b"a=b").decode()},
    }
    assert [*ensembles] == ["0"]
    assert len(ensembles["0"]) == 3
    assert bk("ledger", "info", "4711", "--json").json == created.json
    assert bk("ledger", "read", "4711").code == 4
    assert bk("ledger", "read", "4711", "--password-file", str(tmp_path / "secret")).code == 0


def test_an_id_that_is_taken_is_refused(bk: Invoke, cluster: ThreadedCluster) -> None:
    refused = bk("ledger", "create", "--ledger-id", str(cluster.ledger()))

    assert refused.code == 4
    assert "LEDGER_EXISTS" in refused.stderr


def test_an_ensemble_larger_than_the_cluster_is_not_available(bk: Invoke) -> None:
    refused = bk("ledger", "create", "--ensemble", "4", "--json")

    assert refused.code == 3
    assert refused.json["error"]["type"] == "NotEnoughBookies"
    assert refused.json["error"]["code"] == -6
    assert refused.stderr.startswith("bk: ")
    assert len(refused.stderr.splitlines()) == 1


def test_info_for_people_says_where_each_entry_is(bk: Invoke, cluster: ThreadedCluster) -> None:
    shown = bk("ledger", "info", str(cluster.ledger(b"one", b"two")))

    assert shown.code == 0
    assert "CLOSED" in shown.text
    assert "last entry 1, 6 bytes" in shown.text
    assert "entries 0 to 1 on 127.0.0.1:" in shown.text


@pytest.mark.parametrize("command", ["info", "read", "tail", "recover"])
def test_a_ledger_that_does_not_exist_is_a_negative_answer(bk: Invoke, command: str) -> None:
    refused = bk("ledger", command, "987654", "--json")

    assert refused.code == 1
    assert refused.json["error"]["type"] == "NoSuchLedger"
    assert "ledger 987654" in refused.stderr


def test_lists_are_ids_one_a_line_and_can_be_filtered_by_state() -> None:
    with ThreadedCluster() as alone:

        def run(*arguments: str) -> list[str]:
            listed = invoke_at(alone)(*arguments)
            assert listed.code == 0
            return listed.text.splitlines()

        assert run("ledger", "list") == []
        ids = [alone.ledger(b"12345", close=number % 2 == 0) for number in range(5)]
        assert run("ledger", "list") == [str(ledger_id) for ledger_id in ids]
        assert run("ledger", "list", "--limit", "2") == [str(ledger_id) for ledger_id in ids[:2]]
        assert run("ledger", "list", "--state", "open") == [str(ids[1]), str(ids[3])]
        assert run("ledger", "list", "--state", "open", "--state", "closed", "--limit", "3") == [
            str(ledger_id) for ledger_id in ids[:3]
        ]
        assert run("ledger", "list", "--state", "in-recovery") == []
        assert run("ledger", "list", "--long", "--limit", "2") == [f"{ids[0]}\tCLOSED\t0\t5", f"{ids[1]}\tOPEN\t-1\t0"]
        listed = invoke_at(alone)("ledger", "list", "--json")
        assert listed.objects == [{"ledgerId": ledger_id} for ledger_id in ids]
        listed = invoke_at(alone)("ledger", "list", "--json", "--state", "closed", "--limit", "1")
        assert listed.objects == [{"ledgerId": ids[0], "state": "CLOSED", "lastEntryId": 0, "length": 5}]


def test_more_ledgers_than_are_looked_up_at_a_time_are_all_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkclient.cli.ledger._LOOKUPS_AT_A_TIME", 2)
    with ThreadedCluster() as alone:
        ids = [alone.ledger() for _ in range(5)]

        assert invoke_at(alone)("ledger", "list", "--state", "closed").text.split() == [
            str(ledger_id) for ledger_id in ids
        ]


def test_recovering_closes_the_ledger_and_says_where(bk: Invoke, cluster: ThreadedCluster) -> None:
    ledger_id = cluster.ledger(b"one", b"two", close=False)

    recovered = bk("ledger", "recover", str(ledger_id), "--json")
    again = bk("ledger", "recover", str(ledger_id))

    assert recovered.code == again.code == 0
    assert recovered.json == {
        "ledgerId": ledger_id,
        "state": "CLOSED",
        "lastEntryId": 1,
        "length": 6,
        "wasClosed": False,
    }
    assert "was closed before: last entry 1, 6 bytes" in again.text


def test_recovering_needs_the_password_from_wherever_it_comes(
    bk: Invoke, cluster: ThreadedCluster, tmp_path: Path
) -> None:
    ledger_id = str(cluster.ledger(b"one", password=b"secret", close=False))
    (tmp_path / "password").write_bytes(b"secret\r\n")

    assert bk("ledger", "recover", ledger_id).code == 4
    assert bk("ledger", "recover", ledger_id, BK_LEDGER_PASSWORD="wrong").code == 4
    assert cluster.with_client(lambda client: state(client, int(ledger_id))) is LedgerState.OPEN
    assert bk("ledger", "recover", ledger_id, BK_LEDGER_PASSWORD="secret").code == 0
    assert bk("ledger", "recover", ledger_id, "--password-file", str(tmp_path / "password")).code == 0
    asked = bk("ledger", "recover", ledger_id, "--ask-password", stdin=b"secret\n")
    assert asked.code == 0
    assert "secret" not in asked.stderr + asked.text


async def state(client: BookKeeper, ledger_id: int) -> LedgerState:
    return (await client.ledger_metadata(ledger_id)).state


def test_deleting_asks_first(bk: Invoke, cluster: ThreadedCluster) -> None:
    ledger_id = str(cluster.ledger())

    declined = bk("ledger", "delete", ledger_id, stdin=b"n\n")
    assert declined.code == 1
    assert bk("ledger", "info", ledger_id).code == 0
    accepted = bk("ledger", "delete", ledger_id, stdin=b"y\n")
    assert accepted.code == 0
    assert cluster.uri in accepted.stderr
    assert bk("ledger", "info", ledger_id).code == 1


def test_deleting_by_force_asks_nobody_and_takes_what_is_not_there(bk: Invoke, cluster: ThreadedCluster) -> None:
    ids = [cluster.ledger(), 987_654, cluster.ledger()]

    deleted = bk("ledger", "delete", *map(str, ids), "--force", "--json")

    assert deleted.code == 0
    assert deleted.json == {"deleted": ids}
    assert [bk("ledger", "info", str(ledger_id)).code for ledger_id in ids] == [1, 1, 1]


def test_deleting_what_is_not_there_is_a_negative_answer_and_the_others_go(
    bk: Invoke, cluster: ThreadedCluster
) -> None:
    ledger_id = str(cluster.ledger())

    deleted = bk("ledger", "delete", "987654", ledger_id, stdin=b"y\n")

    assert deleted.code == 1
    assert "there is no ledger 987654" in deleted.stderr
    assert bk("ledger", "info", ledger_id).code == 1


def test_deleting_with_json_cannot_ask(bk: Invoke, cluster: ThreadedCluster) -> None:
    ledger_id = str(cluster.ledger())

    assert bk("ledger", "delete", ledger_id, "--json", stdin=b"y\n").code == 2
    assert bk("ledger", "info", ledger_id).code == 0


def test_bookies_are_listed(bk: Invoke, cluster: ThreadedCluster) -> None:
    listed = bk("bookies", "--json")

    assert listed.json == {"writable": sorted(cluster.bookies.bookie_ids), "readOnly": []}
    assert bk("bookies").text.count("writable") == 3


def test_a_cluster_without_bookies_is_no_error() -> None:
    with ThreadedCluster(0) as nobody:
        assert invoke_at(nobody)("bookies").text == "no bookie is registered\n"
        assert invoke_at(nobody)("bookies", "--json").json == {"writable": [], "readOnly": []}


@pytest.mark.parametrize("hostile", ["\x1b]0;pwn\x07", "a\nledger 9: CLOSED", "\u202egnp.exe", "\x9b2J", "\r"])
def test_what_others_stored_does_not_steer_the_terminal(cluster: ThreadedCluster, bk: Invoke, hostile: str) -> None:
    created = bk("ledger", "create", "--custom", f"x{hostile}key={hostile}value")

    shown = bk("ledger", "info", created.text.strip())
    assert hostile not in shown.text
    assert hostile.encode("unicode_escape").decode() in shown.text
    assert all(line.isprintable() for line in shown.text.splitlines())
    assert bk("ledger", "info", created.text.strip(), "--json").json["customMetadata"].keys() == {f"x{hostile}key"}

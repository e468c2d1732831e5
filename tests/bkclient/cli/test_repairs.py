"""``bk ledger check``, ``bk repair`` and ``bk autorecovery`` on bookies that die."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkclient import BookKeeper
from bkclient.repair import RepairAdmin
from tests.bkclient.cli.cluster import ThreadedCluster
from tests.bkclient.cli.invoking import Invoke, invoke_at


@pytest.fixture
def four_bookies() -> Iterator[ThreadedCluster]:
    """Four bookies of which a test may kill some."""
    with ThreadedCluster(4) as running:
        yield running


def ensemble_of(bk: Invoke, ledger_id: int) -> list[str]:
    found: list[str] = bk("ledger", "info", str(ledger_id), "--json").json["allEnsembles"]["0"]
    return found


def kill(four_bookies: ThreadedCluster, bookie_id: str) -> None:
    four_bookies.run(four_bookies.bookies.kill(bookie_id))


def test_a_sound_ledger_is_said_to_be(four_bookies: ThreadedCluster) -> None:
    bk = invoke_at(four_bookies)
    ledger_id = four_bookies.ledger(*(b"%d" % number for number in range(10)))

    checked = bk("ledger", "check", str(ledger_id), "--thorough", "--json")

    assert checked.code == 0
    assert checked.json == {"ledgerId": ledger_id, "sound": True, "copiesChecked": 20, "fragments": []}
    assert "nothing is wrong" in bk("ledger", "check", str(ledger_id)).text


def test_a_lost_bookie_is_found_repaired_and_not_found_any_more(four_bookies: ThreadedCluster) -> None:
    bk = invoke_at(four_bookies)
    ledger_id = four_bookies.ledger(*(b"%d" % number for number in range(10)))
    lost = ensemble_of(bk, ledger_id)[1]
    kill(four_bookies, lost)

    checked = bk("ledger", "check", str(ledger_id), "--json")
    assert checked.code == 1
    (fragment,) = checked.json["fragments"]
    assert (fragment["firstEntryId"], fragment["lastEntryId"], fragment["closed"]) == (0, 9, True)
    (bad,) = fragment["bad"]
    assert (bad["bookieIndex"], bad["bookieId"], bad["flaw"], bad["code"]) == (1, lost, "unavailable", -8)
    shown = bk("ledger", "check", str(ledger_id))
    assert shown.code == 1
    assert f"{lost}: unavailable" in shown.text
    assert "something is wrong with 1 of 1 ledgers" in shown.stderr

    repaired = bk("repair", "ledger", str(ledger_id), "--json")
    assert (repaired.code, repaired.json["sound"]) == (0, True)
    assert lost not in ensemble_of(bk, ledger_id)
    assert bk("ledger", "check", str(ledger_id), "--thorough").code == 0
    assert bk("ledger", "read", str(ledger_id)).text.split() == [str(number) for number in range(10)]


def test_all_ledgers_are_checked_and_one_bad_one_makes_the_answer_no(four_bookies: ThreadedCluster) -> None:
    bk = invoke_at(four_bookies)
    ids = [four_bookies.ledger(b"x") for _ in range(4)]
    assert bk("ledger", "check", "--all").code == 0
    lost = ensemble_of(bk, ids[0])[0]
    kill(four_bookies, lost)

    checked = bk("ledger", "check", "--all", "--json")

    assert checked.code == 1
    assert [found["ledgerId"] for found in checked.objects] == ids
    assert [found["sound"] for found in checked.objects] == [
        lost not in ensemble_of(bk, ledger_id) for ledger_id in ids
    ]
    assert "ledgers" in checked.stderr


@pytest.mark.parametrize("arguments", [[], ["0", "--all"]])
def test_what_to_check_has_to_be_said_once(four_bookies: ThreadedCluster, arguments: list[str]) -> None:
    assert invoke_at(four_bookies)("ledger", "check", *arguments).code == 2


def test_checking_a_ledger_that_is_not_there_is_a_negative_answer(four_bookies: ThreadedCluster) -> None:
    checked = invoke_at(four_bookies)("ledger", "check", "99", "--json")

    assert (checked.code, checked.json["error"]["type"]) == (1, "NoSuchLedger")


def test_a_ledger_that_cannot_be_repaired_stays_bad(four_bookies: ThreadedCluster) -> None:
    bk = invoke_at(four_bookies)
    ledger_id = four_bookies.ledger(b"x")
    first, second, _ = ensemble_of(bk, ledger_id)
    spare = next(
        bookie_id for bookie_id in four_bookies.bookies.bookie_ids if bookie_id not in ensemble_of(bk, ledger_id)
    )
    kill(four_bookies, first)
    kill(four_bookies, second)
    kill(four_bookies, spare)

    repaired = bk("repair", "ledger", str(ledger_id))

    assert repaired.code == 1
    assert "failed" in repaired.stderr
    assert first in ensemble_of(bk, ledger_id)


def test_what_a_lost_bookie_stores_is_told_and_then_copied(four_bookies: ThreadedCluster) -> None:
    bk = invoke_at(four_bookies)
    ids = [four_bookies.ledger(*(b"%d" % number for number in range(6)), close=number > 0) for number in range(3)]
    lost = ensemble_of(bk, ids[0])[0]
    kill(four_bookies, lost)
    affected = [ledger_id for ledger_id in ids if lost in ensemble_of(bk, ledger_id)]

    planned = bk("repair", "bookie", lost, "--dry-run", "--json")
    assert planned.code == 0
    assert (planned.json["affected"], planned.json["fragmentsReplaced"]) == (affected, 0)
    assert lost in ensemble_of(bk, ids[0])
    left = bk("repair", "bookie", lost, "--ledger", str(ids[0]), "--skip-open", "--json").json
    assert (left["affected"], left["closed"]) == ([ids[0]], [])
    assert [*left["skipped"]] == [str(ids[0])]

    repaired = bk("repair", "bookie", lost, "--json")
    assert repaired.code == 0
    assert repaired.json["closed"] == [ids[0]]
    assert repaired.json["fragmentsReplaced"] == len(affected)
    assert repaired.json["failures"] == {}
    assert all(lost not in ensemble_of(bk, ledger_id) for ledger_id in ids)
    assert bk("repair", "bookie", lost).text.startswith("0 of 3 ledgers name the bookies")


def test_a_repair_of_a_bookie_that_fails_says_for_which_ledgers(four_bookies: ThreadedCluster) -> None:
    bk = invoke_at(four_bookies)
    ledger_id = four_bookies.ledger(b"x")
    first, second, _ = ensemble_of(bk, ledger_id)
    for bookie_id in (first, second, *(set(four_bookies.bookies.bookie_ids) - {*ensemble_of(bk, ledger_id)})):
        kill(four_bookies, bookie_id)

    failed = bk("repair", "bookie", first, second, "--json")

    assert failed.code == 3
    assert [*failed.json["failures"]] == [str(ledger_id)]
    assert failed.stderr.startswith("bk: 1 of 1 ledgers could not be repaired")


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_a_bookie_that_nothing_names_is_not_said_to_be_repaired(
    four_bookies: ThreadedCluster, dry_run: list[str]
) -> None:
    bk = invoke_at(four_bookies)
    four_bookies.ledger(b"x")

    refused = bk("repair", "bookie", "bookie-O", *dry_run, "--json")
    assert (refused.code, refused.json["unknown"], refused.json["failures"]) == (1, ["bookie-O"], {})
    assert "there is no bookie bookie-O" in refused.stderr
    assert bk("repair", "bookie", four_bookies.bookies.bookie_ids[-1], *dry_run).code == 0, "it is registered"
    four_bookies.leave_cookie("bookie-O")
    assert bk("repair", "bookie", "bookie-O", *dry_run).code == 0, "it was a bookie once"


def test_a_bookie_that_runs_is_not_decommissioned(four_bookies: ThreadedCluster) -> None:
    refused = invoke_at(four_bookies)("repair", "decommission", four_bookies.bookies.bookie_ids[0])

    assert refused.code == 4
    assert "shut it down first [ILLEGAL_OPERATION -100]. Stop the bookie, wait until" in refused.stderr


def test_a_bookie_is_decommissioned_once_no_ledger_needs_it(four_bookies: ThreadedCluster) -> None:
    bk = invoke_at(four_bookies)
    lost = ensemble_of(bk, four_bookies.ledger(b"x", b"y", b"z"))[0]
    kill(four_bookies, lost)

    waited = bk("repair", "decommission", lost, "--timeout", "0.2", "--poll", "0.1", "--json")
    assert (waited.code, waited.json) == (1, {"bookieId": lost, "decommissioned": False})
    assert "still need" in waited.stderr
    assert bk("repair", "bookie", lost).code == 0
    done = bk("repair", "decommission", lost, "--json")
    assert (done.code, done.json) == (0, {"bookieId": lost, "decommissioned": True})


def test_auto_recovery_is_switched_off_and_on(four_bookies: ThreadedCluster) -> None:
    bk = invoke_at(four_bookies)

    assert bk("autorecovery", "status", "--json").json == {
        "auditor": None,
        "enabled": True,
        "lostBookieRecoveryDelay": None,
        "underReplicated": [],
    }
    assert bk("autorecovery", "disable", "--json").json == {"enabled": False}
    assert bk("autorecovery", "status").text == "auditor: none; disabled\n"
    assert bk("autorecovery", "enable", "--json").json == {"enabled": True}
    assert bk("autorecovery", "audit", "--json").json == {"asked": True}
    assert bk("autorecovery", "status", "--json").json["lostBookieRecoveryDelay"] == 0


def test_ledgers_that_lack_copies_are_shown_and_make_the_answer_no(four_bookies: ThreadedCluster) -> None:
    bk = invoke_at(four_bookies)

    async def mark(client: BookKeeper) -> None:
        marks = RepairAdmin(client).under_replication(wall_clock_ms=lambda: 17)
        await marks.open()
        await marks.mark(5, ["lost:3181"])

    four_bookies.with_client(mark)

    shown = bk("autorecovery", "status", "--json")
    assert shown.code == 1
    (lacking,) = shown.json["underReplicated"]
    assert (lacking["ledgerId"], lacking["missing"], lacking["lockedBy"]) == (5, ["lost:3181"], None)
    assert "ledger 5 lacks lost:3181" in bk("autorecovery", "status").text


def test_auto_recovery_of_nothing_is_wrong_usage(four_bookies: ThreadedCluster) -> None:
    assert invoke_at(four_bookies)("autorecovery", "run", "--no-auditor", "--no-worker").code == 2

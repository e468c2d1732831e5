"""The LAC of every ledger as Spark follows it, beside a plain reading of the same events."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scenarios.history import Event, Kind, read_history
from spark_analysis.jobs.files import NoHistoriesError
from spark_analysis.jobs.lac import LacVerdict, Lag, LedgerLac, analyze_lacs, entry_lags
from spark_analysis.jobs.verify import Verdict
from spark_analysis.source import event_rows, find_histories, read_histories
from tests.scenarios.stories import Story
from tests.spark_analysis.recorded import bystander, record, truncated, truncating
from tests.spark_analysis.test_cli import run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

AT_BOOKIES = (Kind.BK_STORE, Kind.BK_LAC)
AT_READERS = (Kind.LAC_ADV, Kind.READ_RESULT)


@pytest.fixture(scope="module")
def followed(spark: SparkSession, histories: Path, verdict: Verdict) -> LacVerdict:
    """All plants, near misses and recorded runs."""
    return analyze_lacs(spark, histories, max_ledgers=10_000)


def plain(name: str, path: str) -> dict[int, LedgerLac]:
    """The ledgers of a history, one event after the other."""
    header, events = read_history(path)
    by_ledger: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.ledger >= 0 and event.kind in {
            *(Kind.META_CAS, Kind.META_READ, Kind.APP_ACK, Kind.ADD_SEND),
            *AT_BOOKIES,
            *AT_READERS,
        }:
            by_ledger[event.ledger].append(event)
    return {ledger: plain_ledger(name, header, ledger, those) for ledger, those in by_ledger.items()}


def plain_ledger(name: str, header: Mapping[str, Any], ledger: int, events: list[Event]) -> LedgerLac:
    acks: dict[int, int] = {}
    ends: list[tuple[int, int]] = []
    lacs = {"writer": -1, "bookie": -1, "reader": -1}
    is_recovered = was_deleted = is_used_again = False
    for event in events:
        fields = event.fields
        if event.kind == Kind.META_CAS and fields["cause"] == "delete" and fields["outcome"] != "conflict":
            was_deleted = True
        elif event.kind == Kind.META_CAS and (fields["cause"], fields["outcome"]) == ("create", "ok"):
            is_used_again |= was_deleted
        if event.kind == Kind.APP_ACK and fields["durable"]:
            acks.setdefault(fields["entry"], event.seq)
        elif event.kind == Kind.ADD_SEND and not fields["recovery"]:
            lacs["writer"] = max(lacs["writer"], fields["lac"])
        elif event.kind in AT_BOOKIES:
            lacs["bookie"] = max(lacs["bookie"], fields["lac"])
        elif event.kind in AT_READERS and fields["lac"] is not None:
            lacs["reader"] = max(lacs["reader"], fields["lac"])
        elif event.kind in (Kind.META_CAS, Kind.META_READ) and fields["outcome"] == "ok":
            is_delete = event.kind == Kind.META_CAS and fields["cause"] == "delete"
            if fields["state"] == "CLOSED" and not is_delete:
                ends.append((fields["last_entry"], event.seq))
            is_recovered |= event.kind == Kind.META_CAS and fields["cause"] == "recover"
    prefix = -1
    while prefix + 1 in acks:
        prefix += 1
    acknowledged = max(acks, default=-1)
    end, seq = min(ends, default=(None, None))
    return LedgerLac(
        history=name,
        scenario=header["scenario"],
        seed=header["seed"],
        ledger=ledger,
        acknowledged=acknowledged,
        ack_seq=acks.get(acknowledged),
        prefix=prefix,
        writer_lac=lacs["writer"],
        bookie_lac=lacs["bookie"],
        reader_lac=lacs["reader"],
        last_entry=end,
        close_seq=seq,
        is_recovered=is_recovered,
        margin=None if end is None or is_used_again else end - acknowledged,
    )


def test_every_ledger_is_told_as_a_plain_reading_tells_it(followed: LacVerdict, histories: Path) -> None:
    expected = {
        (file.name, key): one for file in find_histories(histories) for key, one in plain(file.name, file.path).items()
    }
    assert {(one.history, one.ledger): one for one in followed.ledgers} == expected


def test_what_is_truncated_is_what_breaks_the_invariant(followed: LacVerdict, verdict: Verdict) -> None:
    broken = {(one.history, one.ledger) for one in verdict.violations if one.invariant == "NoLacTruncation"}
    assert len(broken) > 5
    assert {
        (one.history, one.ledger) for one in followed.ledgers if one.margin is not None and one.margin < 0
    } == broken
    assert sum(scenario.truncated for scenario in followed.scenarios) == len(broken)
    assert not followed.is_clean


def test_scenarios_are_the_sums_of_their_ledgers(followed: LacVerdict) -> None:
    for scenario in followed.scenarios:
        those = [one for one in followed.ledgers if one.scenario == scenario.scenario]
        closed = sum(one.last_entry is not None for one in those)
        assert (scenario.ledgers, scenario.closed) == (len(those), closed)
        assert scenario.recovered == sum(one.is_recovered for one in those)
        assert scenario.least_margin == min((one.margin for one in those if one.margin is not None), default=None)
    assert sum(scenario.ledgers for scenario in followed.scenarios) == len(followed.ledgers)


def test_lags_are_those_of_a_plain_reading(spark: SparkSession, histories: Path, followed: LacVerdict) -> None:
    expected: dict[str, list[int | None]] = {"unconfirmed": [], "to_bookies_us": [], "to_readers_us": []}
    for file in find_histories(histories / "runs"):
        events = read_history(file.path)[1]
        for ledger in {event.ledger for event in events}:
            those = [event for event in events if event.ledger == ledger]
            sent = {event.fields["entry"]: event.fields["lac"] for event in reversed(those) if is_add(event)}
            expected["unconfirmed"] += [entry - 1 - lac for entry, lac in sent.items()]
            acks = {event.fields["entry"]: event.time_us for event in reversed(those) if event.kind == Kind.APP_ACK}
            for name, kinds in (("to_bookies_us", AT_BOOKIES), ("to_readers_us", AT_READERS)):
                told = [(event.fields["lac"], event.time_us) for event in those if event.kind in kinds]
                for entry, time_us in acks.items():
                    heard = [then for lac, then in told if lac is not None and lac >= entry]
                    expected[name].append(max(0, min(heard) - time_us) if heard else None)
    rows = entry_lags(event_rows(read_histories(spark, histories / "runs"))).collect()
    for name, values in expected.items():
        assert sorted((row["value"] for row in rows if row["lag"] == name), key=order) == sorted(values, key=order)
    assert None in expected["to_bookies_us"]
    assert any(value for value in expected["unconfirmed"])
    count = sum(scenario.unconfirmed.count for scenario in followed.scenarios)
    assert count >= len(expected["unconfirmed"])


def is_add(event: Event) -> bool:
    return event.kind == Kind.ADD_SEND and not event.fields["recovery"]


def order(value: int | None) -> int:
    return -1 if value is None else value


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lacs")
    record(folder / "good.bkh", bystander())
    record(folder / "bad.bkh", truncating(3))
    opened = Story(ledger=4)
    opened.create()
    record(folder / "open.bkh", opened, scenario="open")
    truncated(folder / "cut.bkh")
    return folder


def test_an_open_ledger_has_no_end_and_no_lag(spark: SparkSession, few: Path) -> None:
    found = analyze_lacs(spark, few / "open.bkh")
    (one,) = found.ledgers
    assert (one.acknowledged, one.ack_seq, one.prefix) == (-1, None, -1)
    assert (one.last_entry, one.close_seq, one.margin) == (None, None, None)
    (scenario,) = found.scenarios
    assert (scenario.closed, scenario.truncated, scenario.least_margin) == (0, 0, None)
    assert scenario.unconfirmed == Lag(0, 0, -1, -1, -1, -1)
    assert found.is_clean


def test_the_least_margins_come_first_and_counts_are_complete(spark: SparkSession, few: Path) -> None:
    found = analyze_lacs(spark, few, max_ledgers=1)
    assert [(one.history, one.margin) for one in found.ledgers] == [("bad.bkh", -1)]
    assert sum(scenario.ledgers for scenario in found.scenarios) == 3
    assert (found.histories, found.rejected_files) == (3, 1)
    assert [one.file for one in found.rejected] == ["cut.bkh"]
    assert analyze_lacs(spark, few, max_ledgers=0).ledgers == ()


def test_without_histories_there_is_nothing_to_follow(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoHistoriesError, match="holds no history"):
        analyze_lacs(spark, tmp_path)


@pytest.mark.usefixtures("spark")
def test_the_command_ends_with_0_1_or_2(few: Path) -> None:
    code, out, err = run("lac", few / "good.bkh")
    assert (code, err) == (0, "")
    assert "1 histories, 1 ledgers" in out

    code, out, err = run("lac", few)
    assert (code, err) == (1, "")
    assert "entry 1 was acknowledged" in out
    assert "but the ledger is closed after entry 0" in out

    code, out, err = run("lac", few / "cut.bkh", "--json")
    assert code == 2
    assert "cut.bkh" in err
    assert json.loads(out)["rejected_files"] == 1


@pytest.mark.usefixtures("spark")
def test_json_has_every_figure(few: Path) -> None:
    code, out, _ = run("lac", few / "bad.bkh", "--json")
    assert code == 1
    told = json.loads(out)
    assert told["ledgers"][0]["margin"] == -1
    assert told["scenarios"][0]["to_bookies_us"].keys() == {"count", "never", "p50", "p90", "p99", "max"}

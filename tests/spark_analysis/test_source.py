"""The data source: files become rows as they were written, what is no history says so, and only what is wanted is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

import spark_analysis.decode
from scenarios.history import FIELDS, KINDS, Event, HistoryError, Kind, read_history
from scenarios.runner import run_scenario
from spark_analysis.decode import decode_files
from spark_analysis.packed import decode_whole
from spark_analysis.schema import TABLE_SCHEMA, columns_of
from spark_analysis.source import (
    OPEN_COST_BYTES,
    PARTITION_BYTES,
    HistoryDataSource,
    HistoryFile,
    event_rows,
    file_rows,
    find_histories,
    plan_partitions,
    read_histories,
)
from tests.scenarios.test_history import objects, rewrite
from tests.spark_analysis.recorded import bystander, record, with_choices

pytestmark = pytest.mark.timeout(600)

ARROW_SCHEMA = to_arrow_schema(TABLE_SCHEMA, timezone="UTC")


def decoded(path: Path, schema: pa.Schema = ARROW_SCHEMA, kinds: frozenset[str] | None = None) -> list[dict[str, Any]]:
    return [row for batch in decode_files([(path, path.name)], schema, kinds) for row in batch.to_pylist()]


def as_event(row: Mapping[str, Any]) -> Event:
    """The event that a row was made from; whatever belongs to other kinds has to be null."""
    names = KINDS[row["kind"]]
    assert not [name for name in FIELDS if name not in names and row[name] is not None]
    fields = {name: row[name] for name in names}
    if fields.get("fragments") is not None:
        fields["fragments"] = [[fragment["first_entry"], list(fragment["bookies"])] for fragment in fields["fragments"]]
    return Event(row["seq"], row["time_us"], row["actor"], row["kind"], row["ledger"], fields)


def events_of(rows: list[dict[str, Any]]) -> list[Event]:
    return sorted((as_event(row) for row in rows if row["kind"] is not None), key=lambda event: event.seq)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of a simulated run with a crash, an ensemble change and a recovery."""
    return Path(run_scenario("bookie-crash", 0, record=tmp_path_factory.mktemp("run")).path)


# Decoding ------------------------------------------------------------------------------------------------------------


def test_rows_are_the_events_of_the_history(run: Path) -> None:
    header, events = read_history(run)
    rows = decoded(run)
    assert events_of(rows) == list(events)
    assert {(row["history"], row["scenario"], row["seed"]) for row in rows} == {(run.name, "bookie-crash", 0)}
    (file_row,) = [row for row in rows if row["kind"] is None]
    assert file_row["problem"] is None
    assert file_row["events"] == len(events)
    assert file_row["digest"] == objects(run)[-1]["digest"]
    assert f'"package_version": "{header["package_version"]}"' in file_row["header"]
    assert "schema_version" not in file_row["header"]


def test_a_whole_file_is_decoded_at_once_whatever_else_is_in_its_footer(run: Path, tmp_path: Path) -> None:
    path = with_choices(run, tmp_path / run.name)
    rows = decoded(path)
    whole = decode_whole(path.read_bytes())
    assert whole is not None
    assert (whole.events, whole.digest) == (rows[-1]["events"], rows[-1]["digest"])
    assert rows == decoded(run)


def test_a_large_file_is_emitted_in_pieces_with_the_same_rows(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = decoded(run)
    monkeypatch.setattr(spark_analysis.decode, "WHOLE_FILE_BYTES", 0)
    monkeypatch.setattr(spark_analysis.decode, "PIECE_ROWS", 50)
    batches = list(decode_files([(run, run.name)], ARROW_SCHEMA, None))
    assert len(batches) > 3
    assert max(batch.num_rows for batch in batches) <= 51, "a piece, and the file row"
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert events_of(rows) == events_of(whole)
    assert rows[-1] == whole[-1]


def test_a_large_damaged_file_emits_no_event(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_analysis.decode, "WHOLE_FILE_BYTES", 0)
    monkeypatch.setattr(spark_analysis.decode, "PIECE_ROWS", 10)
    path = tmp_path / "truncated.bkh"
    path.write_bytes(run.read_bytes()[:-40])
    (row,) = decoded(path)
    assert row["kind"] is None
    assert "truncated" in row["problem"]


def test_only_the_wanted_kinds_and_columns_are_decoded(run: Path) -> None:
    schema = to_arrow_schema(columns_of("history", "kind", "entry", "events"), timezone="UTC")
    rows = decoded(run, schema, frozenset({"APP_ACK", "META_CAS"}))
    events = read_history(run)[1]
    wanted = [event for event in events if event.kind in {Kind.APP_ACK, Kind.META_CAS}]
    assert len(wanted) > 5
    assert sorted(row["kind"] for row in rows if row["kind"]) == sorted(event.kind for event in wanted)
    assert {tuple(row) for row in rows} == {("history", "kind", "entry", "events")}
    assert rows[-1]["events"] == len(events), "the file row counts all events, wanted or not"


def test_kinds_and_fields_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    path = record(tmp_path / "later.bkh", bystander())
    header, *events, _ = objects(path)
    header["kinds"].append(["BK_NAP", ["entry", "dream"]])
    events.append([len(header["kinds"]) - 1, len(events), 99, "b0", 8, 5, "sheep"])
    digest = hashlib.sha256(b"".join(msgpack.packb(event) for event in events)).hexdigest()
    rewrite(path, [header, *events, {"events": len(events), "digest": digest}])
    (nap,) = [row for row in decoded(path) if row["kind"] == "BK_NAP"]
    assert (nap["actor"], nap["ledger"], nap["entry"]) == ("b0", 8, 5)


# What is no history --------------------------------------------------------------------------------------------------


def _changed(change: Callable[[list[Any]], None]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        parts = objects(path)
        change(parts)
        rewrite(path, parts)

    return apply


def _flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    place = content.rindex(b"b2")
    content[place + 1] = ord("9")
    path.write_bytes(bytes(content))


def _dangle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "not a history"),
    "text": (lambda path: path.write_text("hello"), "not a history"),
    "foreign": (lambda path: path.write_bytes(msgpack.packb({"format": "elephant"})), "not a history"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-90]), "truncated after"),
    "no-footer": (_changed(lambda parts: parts.pop()), "truncated after"),
    "flipped": (_flip_a_byte, "does not match the digest"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"\x01"), "goes on after its footer"),
    "later-version": (_changed(lambda parts: parts[0].update(schema_version=99)), "has schema version 99"),
    "skipping": (_changed(lambda parts: parts.pop(3)), "stands where event 2 belongs"),
    "shapeless": (_changed(lambda parts: parts.insert(1, "event")), "no known shape"),
    "dangling": (_dangle, "cannot be opened"),
}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, run: Path) -> Path:
    """A folder with two good histories, one of them deep below, everything that is unusable, and files of other kinds."""
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "good.bkh").write_bytes(run.read_bytes())
    record(folder / "deep" / "er" / "good.bkh", bystander(), scenario="deep", seed=3)
    for name, (spoil, _) in UNUSABLE.items():
        spoil(record(folder / f"{name}.bkh", bystander()))
    (folder / "notes.txt").write_text("not to be looked at")
    return folder


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_file_yields_one_row_that_says_what_history_says(name: str, mixed: Path) -> None:
    path = mixed / f"{name}.bkh"
    (row,) = decoded(path)
    with pytest.raises(HistoryError) as refused:
        read_history(path)
    assert row["problem"] == refused.value.problem
    assert UNUSABLE[name][1] in row["problem"]
    assert {column for column, value in row.items() if value is not None} == {"history", "problem"}


def test_a_value_of_the_wrong_type_makes_a_file_unusable(tmp_path: Path) -> None:
    story = bystander()
    story.write(2, content="not a fingerprint")
    (row,) = decoded(record(tmp_path / "typed.bkh", story))
    assert "holds a value in the field content that is no int64" in row["problem"]


@pytest.fixture(scope="module")
def mixed_rows(spark: SparkSession, mixed: Path) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in read_histories(spark, mixed).collect()]


@pytest.mark.spark
def test_a_value_of_the_wrong_type_costs_no_file_that_is_decoded_with_it(run: Path, tmp_path: Path) -> None:
    names = ("a.bkh", "b.bkh", "c.bkh")
    for name in names:
        (tmp_path / name).write_bytes(run.read_bytes())
    story = bystander()
    story.write(2, content="not a fingerprint")
    broken = record(tmp_path / "b.bkh", story)
    files = [(tmp_path / name, name) for name in names]
    rows = [row for batch in decode_files(files, ARROW_SCHEMA, None) for row in batch.to_pylist()]
    problems = {row["history"]: row["problem"] for row in rows if row["kind"] is None}
    assert [name for name, problem in problems.items() if problem] == [broken.name]
    assert "field content that is no int64" in problems[broken.name]
    events = read_history(run)[1]
    for name in ("a.bkh", "c.bkh"):
        assert events_of([row for row in rows if row["history"] == name]) == list(events)


def test_spark_reads_every_usable_file_and_names_the_others(mixed_rows: list[dict[str, Any]], run: Path) -> None:
    problems = {row["history"]: row["problem"] for row in mixed_rows if row["kind"] is None}
    assert len(problems) == len(UNUSABLE) + 2
    assert {name for name, problem in problems.items() if problem is None} == {"good.bkh", "deep/er/good.bkh"}
    for name, (_, problem) in UNUSABLE.items():
        assert problem in problems[f"{name}.bkh"]
    assert events_of([row for row in mixed_rows if row["history"] == "good.bkh"]) == list(read_history(run)[1])
    deep = [row for row in mixed_rows if row["history"] == "deep/er/good.bkh"]
    assert events_of(deep) == bystander().events
    assert {(row["scenario"], row["seed"]) for row in deep} == {("deep", 3)}
    assert {row["history"] for row in mixed_rows if row["kind"]} == {"good.bkh", "deep/er/good.bkh"}


# What is read --------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_single_file_is_read_with_some_columns_and_kinds_only(spark: SparkSession, run: Path) -> None:
    table = read_histories(spark, run, columns=columns_of("history", "kind", "seq", "problem"), kinds=["APP_ACK"])
    assert table.columns == ["history", "seq", "kind", "problem"]
    rows = table.collect()
    acks = [event.seq for event in read_history(run)[1] if event.kind == Kind.APP_ACK]
    assert acks
    assert sorted(row["seq"] for row in rows if row["kind"] == "APP_ACK") == acks
    assert [(row["history"], row["problem"]) for row in rows if row["kind"] is None] == [(run.name, None)]
    assert len(rows) == len(acks) + 1


@pytest.mark.spark
def test_files_are_read_by_the_interpreter_of_the_program(
    spark: SparkSession, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a session that somebody else began, and so has the interpreter that PySpark chose."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "a-python-that-is-not-there")
    assert file_rows(read_histories(spark, run, columns=columns_of("history", "kind"))).count() == 1
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "a-python-that-is-not-there")
    monkeypatch.setenv("PYSPARK_PYTHON", "a-python-that-is-not-there")
    read_histories(spark, run)
    assert spark.sparkContext.pythonExec == "a-python-that-is-not-there"


@pytest.mark.spark
def test_many_small_files_are_read_by_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(40):
        record(tmp_path / f"{seed}.bkh", bystander(), seed=seed)
    table = read_histories(spark, tmp_path, columns=columns_of("history", "kind"), kinds=["APP_ACK"])
    assert table.rdd.getNumPartitions() <= spark.sparkContext.defaultParallelism + 1
    assert (file_rows(table).count(), event_rows(table).count()) == (40, 80)


def _files(*sizes: int) -> list[HistoryFile]:
    return [HistoryFile(f"/{number}", f"{number}", size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "parallelism", "runs_max"),
    [((1000,) * 10_000, 4, 6), ((1000,) * 3, 8, 3), ((0,) * 100, 2, 3), ((PARTITION_BYTES // 2,) * 8, 1, 8)],
)
def test_files_are_packed_in_order_into_few_runs_of_limited_cost(
    sizes: tuple[int, ...], parallelism: int, runs_max: int
) -> None:
    files = _files(*sizes)
    runs = plan_partitions(files, parallelism)
    assert [file for run in runs for file in run.files] == files
    assert min(parallelism, len(files)) <= len(runs) <= runs_max
    for run in runs:
        below = sum(file.size + OPEN_COST_BYTES for file in run.files[:-1])
        assert below < PARTITION_BYTES, "a run ends with the file that reaches the limit"


def test_no_files_need_no_task() -> None:
    assert plan_partitions([], 4) == []


def test_histories_are_found_below_a_folder_in_the_order_of_their_names(mixed: Path) -> None:
    found = find_histories(mixed)
    assert [file.name for file in found] == sorted(
        ["good.bkh", "deep/er/good.bkh", *(f"{name}.bkh" for name in UNUSABLE)]
    )
    sizes = {file.name: file.size for file in found}
    assert sizes["good.bkh"] == (mixed / "good.bkh").stat().st_size
    assert sizes["dangling.bkh"] == 0


def test_a_folder_without_histories_holds_none_and_no_folder_is_an_error(tmp_path: Path) -> None:
    assert find_histories(tmp_path) == []
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder or file"):
        find_histories(tmp_path / "nowhere")


def test_columns_that_histories_do_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="no column colour"):
        columns_of("entry", "colour")


def test_columns_of_another_type_and_a_missing_path_are_refused() -> None:
    with pytest.raises(ValueError, match="column entry is bigint, not string"):
        HistoryDataSource({"path": "x"}).reader(StructType([StructField("entry", StringType())]))
    with pytest.raises(ValueError, match="needs the path"):
        HistoryDataSource({}).reader(columns_of("entry"))

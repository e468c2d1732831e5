"""A data set gives the verdicts that the files gave, takes every file once, and moves nothing to judge it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import msgpack
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from scenarios.history import Event, read_history
from spark_analysis.dataset import survey, writing
from spark_analysis.dataset.buckets import bucket_of
from spark_analysis.dataset.layout import DESCRIPTION, DataSetError, Reason, create_dataset, open_dataset
from spark_analysis.dataset.reading import stored_histories
from spark_analysis.invariants import INVARIANTS
from spark_analysis.jobs import judging, planning
from spark_analysis.jobs.check import check
from spark_analysis.jobs.compare import compare
from spark_analysis.jobs.files import Copy, NoHistoriesError
from spark_analysis.jobs.ingest import Ingested, ingest
from spark_analysis.jobs.inputs import histories_of
from spark_analysis.jobs.lac import analyze_lacs
from spark_analysis.jobs.planning import planned_for_kept_partitions
from spark_analysis.jobs.verify import verify
from spark_analysis.schema import TABLE_SCHEMA
from spark_analysis.source import find_histories
from tests.spark_analysis.plan_text import noting
from tests.spark_analysis.plants import honest_life
from tests.spark_analysis.recorded import bystander, record, truncated, truncating, with_choices
from tests.spark_analysis.test_cli import run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SOME = [
    named
    for named in INVARIANTS
    if named.name in ("NoLacTruncation", "ClosedAtQuorum", "AcksInOrder", "RecoveryReads", "FencedStaysFenced")
]
FEW = [named for named in INVARIANTS if named.name in ("LacHonest", "NoLacTruncation")]


@pytest.fixture(scope="module")
def corpus(spark: SparkSession, whole_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ingested]:
    """All plants, near misses and recorded runs as a data set, whose pieces are small enough that large ones have several."""
    target = tmp_path_factory.mktemp("corpus") / "dataset"
    return target, ingest(spark, whole_corpus, target, buckets=3)


# The same verdicts ---------------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_the_table_has_the_rows_of_the_files(
    spark: SparkSession, corpus: tuple[Path, Ingested], histories: Path
) -> None:
    """All of them and in every column, so formulas come to the same verdict."""
    counted = []
    for folder in (corpus[0], histories):
        with (
            planned_for_kept_partitions(spark, input_bytes=0, partition_bytes=0),
            histories_of(folder).table(spark, TABLE_SCHEMA.names, ()) as rows,
        ):
            row = sf.struct(*(sf.col(name).alias(name) for name in TABLE_SCHEMA.names))
            hashed = rows.select("history", "kind", sf.xxhash64(sf.to_json(row)).alias("hash"))
            sums = sf.count(sf.lit(1)).alias("rows"), sf.sum(sf.col("hash").cast("decimal(38,0)")).alias("sum")
            counted.append({tuple(found) for found in hashed.groupBy("history", "kind").agg(*sums).collect()})
    assert counted[0] == counted[1]
    assert sum(found[2] for found in counted[0]) > 10_000


def test_pages_can_be_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    record(tmp_path / "histories" / "a.bkh", honest_life())
    ingest(spark, tmp_path / "histories", tmp_path / "dataset", buckets=1)
    ((path, _),) = open_dataset(tmp_path / "dataset").event_files()[0]
    kind = pq.ParquetFile(path).metadata.row_group(0).column(TABLE_SCHEMA.names.index("kind"))
    assert (kind.path_in_schema, kind.has_column_index, kind.has_offset_index) == ("kind", True, True)


@pytest.mark.deep
def test_formulas_find_what_they_found_in_the_files_and_move_nothing(
    spark: SparkSession,
    corpus: tuple[Path, Ingested],
    whole_corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = verify(spark, whole_corpus, invariants=SOME)
    planned: list[str] = []
    monkeypatch.setattr(judging, "Kept", noting(planned))
    found = verify(spark, corpus[0], invariants=SOME)
    assert all(one.violated for one in expected.invariants)
    assert [replace(one, replay="") for one in found.violations] == [
        replace(one, replay="") for one in expected.violations
    ]
    assert replace(found, violations=(), seconds=0) == replace(expected, violations=(), seconds=0)
    assert len(planned) > len(SOME)
    assert "Exchange" not in "".join(planned)
    assert "Python" not in "".join(planned)


@pytest.mark.deep
def test_formulas_find_the_same_in_partitions_that_do_not_fit_into_memory(
    spark: SparkSession, corpus: tuple[Path, Ingested], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables are sorted, and an aggregate gives up its table after the first keys; what is large is not sent to all tasks."""
    expected = verify(spark, corpus[0], invariants=SOME)
    planned: list[str] = []
    monkeypatch.setattr(judging, "Kept", noting(planned))
    monkeypatch.setattr(planning, "SORTED_BYTES", 0)
    monkeypatch.setitem(planning.SORTED, "spark.sql.objectHashAggregate.sortBased.fallbackThreshold", "2")
    monkeypatch.setitem(planning.SORTED, "spark.sql.autoBroadcastJoinThreshold", "-1")  # so that little counts as much
    found = verify(spark, corpus[0], invariants=SOME)
    assert replace(found, seconds=0) == replace(expected, seconds=0)
    assert "SortMergeJoin" in "".join(planned)
    assert "ShuffledHashJoin" not in "".join(planned)
    assert "Exchange" not in "".join(planned)


def test_a_partition_is_as_large_as_its_largest_file(spark: SparkSession, tmp_path: Path) -> None:
    record(tmp_path / "files" / "small.bkh", honest_life())
    record(tmp_path / "files" / "large.bkh", *(bystander(ledger) for ledger in range(2_000)))
    size = (tmp_path / "files" / "large.bkh").stat().st_size
    ingest(spark, tmp_path / "files", tmp_path / "dataset", buckets=1)
    files, stored = (histories_of(tmp_path / name) for name in ("files", "dataset"))
    assert size < files.largest_partition < size + (64 << 20)
    assert 0 < stored.largest_partition == stored.size


@pytest.mark.deep
def test_the_checker_and_lacs_are_those_of_the_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a relative path, and in a folder whose name has what means something to Spark."""
    dataset = "a data set's [1] {2}*"
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "files" / "bad.bkh", truncating(3))
    record(tmp_path / "files" / "good.bkh", honest_life(), bystander(), seed=5)
    truncated(tmp_path / "files" / "cut.bkh")
    ingest(spark, tmp_path / "files", dataset)
    stored, files = (check(spark, name) for name in (dataset, tmp_path / "files"))
    told = [one.replay for one in files.violations]
    assert told == [
        one.replay.replace("bk-chaos replay ", f"bk-chaos replay {tmp_path}/files/") for one in stored.violations
    ]
    stored, files = (
        replace(one, seconds=0, violations=tuple(replace(broken, replay="") for broken in one.violations))
        for one in (stored, files)
    )
    assert stored == files
    assert (stored.histories, stored.rejected_files, stored.is_clean) == (2, 1, False)
    lacs, of_files = (analyze_lacs(spark, name) for name in (dataset, tmp_path / "files"))
    assert replace(lacs, seconds=0) == replace(of_files, seconds=0)
    compared = compare(spark, dataset, invariants=FEW)
    assert (compared.histories, compared.rejected_files, compared.disagreed) == (2, 1, 0)
    assert compared.accusations > 0


# What is taken and what is set aside ---------------------------------------------------------------------------------


@pytest.mark.deep
def test_every_event_is_there_as_it_was(corpus: tuple[Path, Ingested], histories: Path) -> None:
    target, found = corpus
    files = {file.name: file for file in find_histories(histories)}
    events = 0
    for parts in open_dataset(target).event_files().values():
        for stored in stored_histories([path for path, _ in parts]):
            recorded = read_history(Path(files.pop(stored.name).path))[1]
            assert list(stored.events()) == recorded
            events += len(recorded)
    assert not files
    assert (found.events, found.all_events) == (events, events)


def odd_files(folder: Path) -> None:
    record(folder / "good.bkh", bystander())
    shutil.copy(folder / "good.bkh", folder / "good-copy.bkh")
    truncated(folder / "torn.bkh")
    shutil.copy(folder / "torn.bkh", folder / "torn-copy.bkh")
    (folder / "foreign.bkh").write_text("no history at all")
    (folder / "empty.bkh").write_bytes(b"")
    record(folder / "other.bkh", truncating(3))
    whole = (folder / "other.bkh").read_bytes()
    (folder / "flipped.bkh").write_bytes(whole.replace(b"writer", b"wRiter", 1))
    (folder / "more.bkh").write_bytes(whole + b"\x01")
    header = msgpack.Unpacker(strict_map_key=False)
    header.feed(whole)
    described = header.unpack()
    (folder / "future.bkh").write_bytes(msgpack.packb(described | {"schema_version": 2}) + whole[header.tell() :])
    typed = [
        replace(event, fields={**event.fields, "entry": "three"}) if "entry" in event.fields else event
        for event in bystander().events
    ]
    record(folder / "typed.bkh", events=typed)
    (folder / "gone.bkh").symlink_to(folder / "nowhere")


ODD = {
    "empty.bkh": Reason.FOREIGN,
    "flipped.bkh": Reason.DAMAGED,
    "foreign.bkh": Reason.FOREIGN,
    "future.bkh": Reason.VERSION,
    "gone.bkh": Reason.DAMAGED,
    "good.bkh": Reason.DUPLICATE,
    "more.bkh": Reason.DAMAGED,
    "torn-copy.bkh": Reason.TORN,
    "torn.bkh": Reason.TORN,
    "typed.bkh": Reason.DAMAGED,
}


def test_files_that_cannot_be_used_are_set_aside_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    odd_files(tmp_path / "files")
    found = ingest(spark, tmp_path / "files", tmp_path / "dataset", buckets=2)
    assert {one.file: one.reason for one in found.named} == ODD
    assert (found.taken, found.histories, found.is_clean) == (2, 2, False)
    dataset = open_dataset(tmp_path / "dataset")
    assert {row["history"]: row["reason"] for row in dataset.set_aside().to_pylist()} == ODD
    assert dataset.taken(["history"])["history"].to_pylist() == ["good-copy.bkh", "other.bkh"]

    stored, files = (verify(spark, tmp_path / name, invariants=FEW) for name in ("dataset", "files"))
    assert stored.histories == files.histories == 2, "a copy is counted once"
    assert stored.copies == files.copies == (Copy("good.bkh", "good-copy.bkh"),)
    assert stored.rejected == files.rejected
    assert stored.rejected_files == files.rejected_files == len(ODD) - 1


def test_another_ingest_takes_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    files, target = tmp_path / "files", tmp_path / "dataset"
    record(files / "a.bkh", bystander(), seed=1)
    torn = record(files / "b.bkh", truncating(3), seed=2)
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-50])
    assert ingest(spark, files, target).set_aside == {Reason.TORN: 1}

    torn.write_bytes(whole)  # its writer has finished
    record(files / "below" / "c.bkh", honest_life(), seed=3)
    found = ingest(spark, files, target)
    assert (found.unchanged, found.taken, found.histories, found.set_aside) == (1, 2, 3, {})
    assert open_dataset(target).set_aside().num_rows == 0
    stored, of_files = (verify(spark, source, invariants=FEW).violations for source in (target, files))
    assert [replace(one, replay="") for one in stored] == [replace(one, replay="") for one in of_files]
    assert {one.replay for one in stored} == {"bk-chaos replay b.bkh"}, "where the file is, a data set does not tell"

    record(files / "a.bkh", truncating(3), seed=1)  # another history under the same name
    (files / "below" / "c.bkh").touch()
    found = ingest(spark, files, target)
    assert (found.unchanged, found.taken, found.set_aside) == (2, 0, {Reason.NAME_TAKEN: 1})
    again = ingest(spark, files, target)
    assert (again.unchanged, again.taken, again.set_aside) == (3, 0, {})
    assert [path.name for path in open_dataset(target).ingests] == ["ingest-000001", "ingest-000002", "ingest-000003"]


def test_an_ingest_that_was_ended_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "files" / "a.bkh", bystander())
    target = tmp_path / "dataset"
    with monkeypatch.context() as patched:
        patched.setattr("spark_analysis.jobs.ingest._record", lambda *_: exec("raise KeyboardInterrupt"))
        with pytest.raises(KeyboardInterrupt):
            ingest(spark, tmp_path / "files", target)
    with pytest.raises(NoHistoriesError, match="is a data set without a history"):
        verify(spark, target)
    assert ingest(spark, tmp_path / "files", target).taken == 1
    assert sorted(path.name for path in target.iterdir()) == [DESCRIPTION, "ingest-000001"]


# Large files ---------------------------------------------------------------------------------------------------------


def long_history(path: Path, events: int) -> Path:
    story = bystander()
    many = [Event(0, 0, "reader", "LAC_ADV", 8, {"lac": 1, "source": "open", "handle": -1})] * events
    return record(path, story, events=many)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is large, and pieces are small; on executors too, which tests of large files do without."""
    monkeypatch.setattr(survey, "LARGE_BYTES", 0)
    monkeypatch.setattr(survey, "CHUNK_EVENTS", 100)
    monkeypatch.setattr(writing, "GROUP_EVENTS", 30)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("events", [70, 100 - len(bystander().events), 250, 300 - len(bystander().events)])
def test_a_large_file_is_cut_and_put_together_again(tmp_path: Path, events: int) -> None:
    path = long_history(tmp_path / "long.bkh", events)
    (found,) = survey.survey_files(find_histories(path))
    recorded = read_history(path)[1]
    assert found.problem is None
    assert [chunk.first_seq for chunk in found.chunks] == list(range(0, len(recorded), 100))
    targets = [str(tmp_path / f"{number}_00000.parquet") for number in range(len(found.chunks))]
    for number, (chunk, target) in enumerate(zip(found.chunks, targets, strict=True)):
        work = writing.ChunkWork(target, found, chunk, number == len(found.chunks) - 1)
        assert [one.problem for one in writing.write_chunk(work)] == [None]
    assert [list(stored.events()) for stored in stored_histories(targets)] == [recorded]
    assert max(pq.ParquetFile(target).num_row_groups for target in targets) > 1

    unread = stored_histories([*targets, *targets])
    assert [one.name for one in unread] == ["long.bkh", "long.bkh"], "also if nobody looks at the events"


@pytest.mark.usefixtures("small_pieces")
def test_a_large_file_is_cut_whatever_else_is_in_its_footer(tmp_path: Path) -> None:
    plain = long_history(tmp_path / "plain.bkh", 250)
    (expected,) = survey.survey_files(find_histories(plain))
    (found,) = survey.survey_files(find_histories(with_choices(plain, tmp_path / "long.bkh")))
    assert found.problem is None
    assert (found.events, found.digest, found.chunks) == (expected.events, expected.digest, expected.chunks)
    assert len(found.chunks) > 2


@pytest.mark.usefixtures("small_pieces")
def test_what_is_wrong_with_a_large_file_is_found_before_it_is_cut(tmp_path: Path) -> None:
    whole = long_history(tmp_path / "long.bkh", 250).read_bytes()
    for broken, problem in (
        (whole[:-50], "is truncated"),
        (whole[:500] + b"\xc1" + whole[501:], ""),
        (whole.replace(b"reader", b"rEader", 1), "does not match the digest"),
        (whole + b"\x00", "goes on after its footer"),
    ):
        (tmp_path / "long.bkh").write_bytes(broken)
        (found,) = survey.survey_files(find_histories(tmp_path / "long.bkh"))
        assert found.problem is not None
        assert found.problem.startswith(problem)
        assert not found.chunks


@pytest.mark.usefixtures("small_pieces")
def test_a_chunk_with_a_value_of_another_type_sets_the_file_aside(tmp_path: Path) -> None:
    bad = [Event(0, 0, "reader", "LAC_ADV", 8, {"lac": "three", "source": "open", "handle": -1})]
    path = record(tmp_path / "long.bkh", bystander(), events=bad)
    (found,) = survey.survey_files(find_histories(path))
    (one,) = writing.write_chunk(writing.ChunkWork(str(tmp_path / "0_0.parquet"), found, found.chunks[0], is_last=True))
    assert one.problem is not None
    assert one.problem.startswith("holds a value in the field lac that is no int64")
    assert [entry.name for entry in tmp_path.iterdir()] == ["long.bkh"]


@pytest.mark.deep
def test_a_large_file_is_judged_like_a_small_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver cuts here, so that the small limits hold where it is done."""
    for name, story in (("a.bkh", truncating(3)), ("b.bkh", honest_life()), ("c.bkh", bystander())):
        record(tmp_path / "files" / name, story)
    with monkeypatch.context() as patched:
        patched.setattr(survey, "LARGE_BYTES", (tmp_path / "files" / "c.bkh").stat().st_size)
        patched.setattr(survey, "CHUNK_EVENTS", 20)
        looked = {one.file.name: one for one in survey.survey_files(find_histories(tmp_path / "files"))}
        assert len(looked["b.bkh"].chunks) > 2
        patched.setattr("spark_analysis.jobs.ingest._survey", lambda *_: [looked[name] for name in sorted(looked)])
        found = ingest(spark, tmp_path / "files", tmp_path / "dataset", buckets=1)
    assert (found.taken, found.events) == (
        3,
        sum(len(read_history(path)[1]) for path in (tmp_path / "files").iterdir()),
    )
    stored, files = (verify(spark, tmp_path / name, invariants=FEW) for name in ("dataset", "files"))
    assert [found.replay for found in stored.violations] == ["bk-chaos replay a.bkh"], "where its file was is not known"
    there = tuple(replace(found, replay="bk-chaos replay a.bkh") for found in files.violations)
    assert replace(stored, seconds=0) == replace(files, seconds=0, violations=there)


# The layout ----------------------------------------------------------------------------------------------------------


def test_a_history_is_where_spark_looks_for_it(spark: SparkSession) -> None:
    names = ["", "a", "bc", "def", "runs/zombie-writer-7.bkh", "häß.bkh", "\U0001f600", "x" * 1000]
    rows = spark.createDataFrame([(name,) for name in names], "name string")
    for buckets in (1, 7, 4096):
        told = rows.select("name", sf.pmod(sf.hash("name"), sf.lit(buckets)).alias("bucket")).collect()
        assert {row["name"]: row["bucket"] for row in told} == {name: bucket_of(name, buckets) for name in names}


def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataSetError, match="is neither empty nor a data set; choose another folder"):
        create_dataset(tmp_path, 2)
    for buckets in (0, 100_001):
        with pytest.raises(DataSetError, match=rf"buckets must be in 1..100000, got {buckets}"):
            create_dataset(tmp_path / "new", buckets)


@pytest.mark.parametrize(
    ("described", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "does not say that it is one"),
        ('{"format": "bk-dataset", "version": 2, "buckets": 2}', "of version 2; this program reads version 1. Ingest"),
        ('{"format": "bk-dataset", "version": 1, "buckets": 0}', "is a damaged data set"),
    ],
)
def test_what_is_no_data_set_is_refused_at_once(tmp_path: Path, described: str, problem: str) -> None:
    (tmp_path / DESCRIPTION).write_text(described)
    with pytest.raises(DataSetError, match=problem):
        open_dataset(tmp_path)
    code, out, err = run("verify", tmp_path)
    assert (code, out) == (2, "")
    assert problem in err


def test_a_data_set_of_another_shape_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    record(tmp_path / "files" / "a.bkh", bystander())
    dataset = create_dataset(tmp_path / "dataset", 2)
    with pytest.raises(DataSetError, match="has 2 buckets, which cannot be changed to 3"):
        ingest(spark, tmp_path / "files", dataset.root, buckets=3)


# The command ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_the_command_tells_what_was_taken(tmp_path: Path) -> None:
    odd_files(tmp_path / "files")
    target = tmp_path / "dataset"
    code, out, err = run("ingest", tmp_path / "files", "--to", target)
    assert code == 2
    assert "set aside: duplicate" in out
    assert "torn.bkh: is truncated" in err
    assert "good.bkh" not in err, "a copy is no defect"

    shutil.rmtree(target)
    for name in ODD:
        (tmp_path / "files" / name).unlink()
    code, out, err = run("ingest", tmp_path / "files", "--to", target, "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert (shown["taken"], shown["set_aside"], shown["histories"]) == (2, {}, 2)

    assert run("verify", target, "--invariant", "NoLacTruncation")[0] == 1
    code, _, err = run("replay", target)
    assert code == 2
    assert "is a data set; give the folder of the files" in err


def test_a_file_that_is_no_history_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "foreign.bkh").write_text("no history at all")
    code, out, err = run("ingest", tmp_path, "--to", tmp_path / "dataset")
    assert (code, out) == (2, "")
    assert "foreign.bkh: is not a history" in err
    assert not (tmp_path / "dataset").exists()

"""The picture of a bookie under load shows what it is for: back-pressure that sets in, and lets go again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from simbookie.bookie import Bookie
from simbookie.cli.app import app
from simbookie.pictures.load import OfferedLoad, load_picture, sampled_load
from simbookie.pictures.sampling import Sampler, Samples
from simbookie.storage.kinds import StoreKind
from simbookie.storage.memory import MemoryStorage

DOCS = Path(__file__).resolve().parents[3] / "docs"
Virtually = Callable[[Callable[[], Any]], None]


@pytest.fixture(scope="module", params=StoreKind, ids=lambda kind: kind.value)
def played(request: pytest.FixtureRequest) -> tuple[StoreKind, Samples]:
    return request.param, sampled_load(request.param)


def at(samples: Samples, name: str, seconds: float) -> float:
    index = min(range(len(samples.times)), key=lambda each: abs(samples.times[each] - seconds))
    return samples.of(name)[index]


def test_back_pressure_sets_in_and_lets_go(played: tuple[StoreKind, Samples]) -> None:
    kind, samples = played
    load = OfferedLoad()
    waiting = samples.of("with clients")
    assert at(samples, "with clients", load.peak_from_s - 0.5) == 0
    assert at(samples, "with clients", load.peak_to_s) > 1000
    assert waiting[-1] == 0
    assert max(samples.of("bookkeeper_server_ADD_ENTRY_IN_PROGRESS")) == 500, "as many as may"
    assert max(samples.of("bookie_journal_JOURNAL_QUEUE_SIZE")) >= 100
    assert max(samples.of("bookie_journal_JOURNAL_QUEUE_LINE")) > 0
    assert samples.of("bookie_journal_JOURNAL_QUEUE_LINE")[-1] == 0
    if kind is not StoreKind.INTERLEAVED:
        limit = samples.of("bookie_write_cache_max_size")[-1]
        assert 0.9 * limit < max(samples.of("bookie_write_cache_size")) <= limit
        assert samples.of("bookie_write_cache_size")[-1] < 0.5 * limit
    assert 0 <= samples.of("offered")[-1] - samples.of("acknowledged")[-1] < 10


def test_flushes_syncs_and_garbage_are_seen(played: tuple[StoreKind, Samples]) -> None:
    kind, samples = played
    scope = "bookie" if kind is StoreKind.DB else "bookie_gc"
    assert samples.of("bookie_journal_JOURNAL_SYNCS")[-1] > 100
    assert samples.of("bookie_CHECKPOINTS")[-1] > 5
    assert samples.of(f"{scope}_RECLAIMED_DELETION_SPACE_BYTES")[-1] > 0
    assert samples.of(f"{scope}_RECLAIMED_COMPACTION_SPACE_BYTES")[-1] > 0
    assert max(samples.of(f"{scope}_ENTRY_LOG_SPACE_BYTES")) > 0


def test_the_picture_has_a_curve_for_each_of_these(played: tuple[StoreKind, Samples]) -> None:
    kind, samples = played
    root = ET.fromstring(load_picture(kind, samples))
    names = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"offered", "with clients", "in line", "waiting for a flush", "syncs", "flushes", "compaction"} <= names
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 15


def test_the_picture_of_the_page_is_the_one_that_is_drawn_now(played: tuple[StoreKind, Samples]) -> None:
    kind, samples = played
    page = (DOCS / "reference" / "bookie-limits.md").read_text(encoding="utf-8")
    assert "](../inside/load/bookie-load.svg)" in page
    if kind is StoreKind.DB:
        drawn = (DOCS / "inside" / "load" / "bookie-load.svg").read_text(encoding="utf-8")
        assert drawn == load_picture(kind, samples), "bk-sim picture docs/inside/load/bookie-load.svg draws it anew"


def test_the_same_load_gives_the_same_picture() -> None:
    load = OfferedLoad(seconds=2.0, peak_from_s=0.5, peak_to_s=1.0)
    pictures = {load_picture(StoreKind.DB, sampled_load(StoreKind.DB, load, seed=3)) for _ in range(2)}
    assert len(pictures) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"usual": 0},
        {"usual": 10, "peak": 9},
        {"peak_from_s": 8.0},
        {"peak_to_s": 17.0},
        {"entry_bytes": 31},
        {"ledger_age_s": 0},
    ],
)
def test_a_load_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="load: "):
        OfferedLoad(**wrong)


def test_samples_are_as_long_as_their_times_whatever_comes_and_goes() -> None:
    samples = Samples()
    samples.add(0.0, {"a": 1})
    samples.add(1.0, {"a": 3, "b": 5})
    samples.add(3.0, {"b": 1})
    assert (samples.of("a"), samples.of("b"), samples.of("c")) == ([1, 3, 3], [0, 5, 1], [0, 0, 0])
    assert samples.rate("a") == [0, 2, 0]
    assert samples.rate("b") == [0, 5, 0], "a counter that began anew"
    assert samples.rate("a", moments=2) == [0, 2, 2 / 3]
    assert Samples().rate("a") == []


def test_a_sampler_takes_so_many_samples_and_no_more(virtually: Virtually) -> None:
    async def story() -> None:
        bookie = Bookie("b0", MemoryStorage())
        bookie.start()
        sampler = Sampler(bookie, interval_s=0.5, samples_max=4)
        sampler.start()
        await asyncio.sleep(100)
        assert sampler.samples.times == [0.0, 0.5, 1.0, 1.5]
        sampler.stop()
        with pytest.raises(ValueError, match="sampler: "):
            Sampler(bookie, interval_s=0)

    virtually(story)


def test_the_command_draws(tmp_path: Path) -> None:
    file = tmp_path / "load.svg"
    ended = CliRunner().invoke(app, ["picture", str(file), "--storage", "interleaved", "--peak", "600", "--json"])
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert len(told["times"]) == len(told["series"]["acknowledged"]) > 100
    assert ET.fromstring(file.read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    assert CliRunner().invoke(app, ["picture", str(file), "--usual", "5", "--peak", "4"]).exit_code == 2
    assert CliRunner().invoke(app, ["picture", str(tmp_path / "none" / "x.svg"), "--peak", "600"]).exit_code == 1

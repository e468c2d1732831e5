"""Long files of tests begin first, and the list of them is true."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from xdist.scheduler import loadscope

from tests import scheduling
from tests.scheduling import LONG, SPARK, LongestFirst, seconds

ROOT: Final = Path(__file__).resolve().parents[1]


class Process:
    """A process of tests that only notes which it is told to run."""

    shutting_down = False

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="gw0")
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def order(tests: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order in which the only process there is runs ``tests``."""
    monkeypatch.setattr(loadscope, "parse_tx_spec_config", lambda _config: ["popen"])
    config: Any = SimpleNamespace(option=SimpleNamespace(loadscopereorder=True))
    process: Any = Process()
    scheduler = LongestFirst(config)
    scheduler.add_node(process)
    scheduler.add_node_collection(process, tests)
    scheduler.schedule()
    for done in range(len(tests)):
        scheduler.mark_test_complete(process, process.told[done])
    assert process.shutting_down
    return [tests[index] for index in process.told]


def test_what_takes_longest_begins_first_and_more_tests_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "LONG", {"tests/test_slow.py": 9.0, "tests/test_slower.py": 10.0, SPARK: 5.0})
    few = [f"tests/test_few.py::test_{number}" for number in range(3)]
    many = [f"tests/test_many.py::test_{number}" for number in range(30)]
    spark = [f"{SPARK}test_a.py::test_it", f"{SPARK}test_b.py::Test::test_it"]
    slow, slower = "tests/test_slow.py::test_it", "tests/test_slower.py::test_it"
    tests = [*few, spark[0], slow, *many, slower, spark[1]]
    assert order(tests, monkeypatch) == [slower, slow, *spark, *many, *few]


def test_a_file_with_very_many_tests_takes_at_least_what_they_take() -> None:
    (name, told) = max(LONG.items(), key=lambda item: item[1])
    assert seconds(name, 1) == told
    assert seconds(name, 1_000_000) > told


@pytest.mark.parametrize("name", LONG)
def test_what_is_listed_as_long_is_there(name: str) -> None:
    assert (ROOT / name).exists()
    assert not name.startswith(SPARK) or name == SPARK, "all of Spark is one"

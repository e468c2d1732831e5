"""Where bookies are, and how a client learns it."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import random
import stat
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkclient import ClientConfig, PlacementSettings
from bkclient.errors import ArgumentError
from bkclient.placement import (
    FixedLocations,
    FunctionLocations,
    LedgerShape,
    RackAwarePlacement,
    ScriptLocations,
    location_script,
    locations_from_pulsar,
    topology,
)
from bkclient.placement.factory import locations_from_config, policy_from_config
from bkclient.placement.topology import Topology
from tests.bkclient.placement.cluster import NONE, sets, told

Script = Callable[[str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Makes an executable shell script of the given lines, and tells its path."""

    def make(lines: str) -> str:
        path = tmp_path / "where-is"
        path.write_text("#!/bin/sh\n" + textwrap.dedent(lines))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


# Places ---------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PL-10")
def test_a_bookie_is_where_it_was_last_known_to_be_or_in_the_default_rack() -> None:
    where = FixedLocations({"a": "/r1", "b": "/r2"})
    known = Topology(where, "/default-rack")
    known.update(sets("abc"))
    assert [known.place_of(b) for b in "abcd"] == ["/r1", "/r2", "/default-rack", None]
    assert [known.is_located(b) for b in "abcd"] == [True, True, False, False]
    where.replace({"b": "/r3"})
    known.update(sets("c"))
    assert [known.place_of(b) for b in "abc"] == ["/r1", "/r3", "/default-rack"]


@pytest.mark.rule("PL-10")
def test_locations_of_bookies_that_are_gone_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "LAST_KNOWN_MAX", 2)
    where = FixedLocations({"a": "/r1", "b": "/r2", "c": "/r3"})
    known = Topology(where, "/default-rack")
    known.update(sets("abc"))
    where.replace({})
    assert [known.place_of(b) for b in "abc"] == ["/default-rack", "/r2", "/r3"]


@pytest.mark.rule("PL-10")
def test_a_plug_in_that_fails_or_talks_nonsense_leaves_bookies_where_they_are(caplog: pytest.LogCaptureFixture) -> None:
    answers: dict[str, object] = {"a": "/r1", "b": "no path"}

    def ask(bookie_id: str) -> str:
        return answers[bookie_id]  # type: ignore[return-value]

    where = FunctionLocations(ask)
    known = Topology(where, "/default-rack")
    known.update(sets("abc"))
    assert [known.place_of(b) for b in "abc"] == ["/r1", "/default-rack", "/default-rack"]
    answers["a"] = 17
    where.changed()
    assert known.place_of("a") == "/r1"
    where.changed()
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3  # once for each bookie


def test_a_listener_hears_of_changes_until_it_cancels() -> None:
    where, heard = FixedLocations({}), list[int]()
    cancel = where.on_change(lambda: heard.append(1))
    where.replace({"a": "/r1"})
    cancel()
    cancel()
    where.replace({"a": "/r2"})
    assert heard == [1]


def test_locations_that_outlive_a_policy_forget_it() -> None:
    where = FixedLocations({"a": "/r1"})
    policy = told(RackAwarePlacement(random.Random(1), where), "a")
    assert len(where._listeners) == 1
    where.replace({"a": "/r2"})
    assert len(where._listeners) == 1
    del policy
    gc.collect()
    where.replace({"a": "/r3"})
    assert len(where._listeners) == 0


@pytest.mark.parametrize("location", ["", "/", "r1", "/r1/", "//r1", "/r 1", "/" + "x" * 2000])
def test_a_location_that_is_no_path_is_a_wrong_argument(location: str) -> None:
    with pytest.raises(ArgumentError, match="location must be a path"):
        FixedLocations({"a": location})


def test_racks_are_read_as_pulsar_writes_them() -> None:
    written = {
        "default": {"a:3181": {"rack": "/eu/r1", "hostname": "a"}, "b:3181": {"rack": "r2"}, "c:3181": {"rack": ""}},
        "other": {"d:3181": {"rack": "/us/r1"}, "e:3181": None},
    }
    found = locations_from_pulsar(json.dumps(written).encode())
    assert found == {"a:3181": "/eu/r1", "b:3181": "/r2", "d:3181": "/us/r1"}
    assert locations_from_pulsar(b"") == {}
    for nonsense in (b"{", b"[]", b'{"default": 3}'):
        with pytest.raises(ArgumentError, match="rack information"):
            locations_from_pulsar(nonsense)


# Scripts --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PL-10")
async def test_a_script_is_asked_for_hosts_once_and_its_answers_hold(script: Script, tmp_path: Path) -> None:
    where = ScriptLocations(
        script(f"""
        echo "$@" >> {tmp_path}/asked
        for host in "$@"; do echo /rack-of-$host; done
        """)
    )
    heard: list[int] = []
    where.on_change(lambda: heard.append(1))
    assert where.location_of("one:3181") is None
    assert await where.resolve(["one:3181", "one:3182", "two"])
    assert [where.location_of(b) for b in ("one:3181", "one:3182", "two")] == [
        "/rack-of-one",
        "/rack-of-one",
        "/rack-of-two",
    ]
    assert await where.resolve(["two", "one:3181"])
    assert heard == [1]
    where.forget(["two"])
    assert where.location_of("two") is None
    assert await where.resolve(["two", "one:3181"])
    assert (tmp_path / "asked").read_text() == "one two\ntwo\n"


async def test_a_script_is_asked_for_a_bounded_number_at_a_time(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location_script, "ARGUMENTS_PER_RUN", 2)
    monkeypatch.setattr(location_script, "LOCATIONS_REMEMBERED_MAX", 4)
    where = ScriptLocations(script(f'echo "$@" >> {tmp_path}/asked; for host in "$@"; do echo /r; done'))
    assert not await where.resolve(["a", "b", "c", "d", "e"])  # the first is forgotten for the fifth
    assert (tmp_path / "asked").read_text() == "a b\nc d\ne\n"
    assert [where.location_of(b) for b in "abcde"] == [None, "/r", "/r", "/r", "/r"]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("echo /r1", "printed 1 words"),
        ("echo /r1 nonsense", "printed 2 words"),
        ("echo /r1 /r2; exit 3", "status 3"),
        ("head -c 300000 /dev/zero; sleep 60", "printed over"),
        # Out of reach of what ends the script; it ends when nobody reads from it any more.
        ("setsid cat /dev/zero; sleep 60", "printed over"),
        ("echo /r1 /r2; sleep 60", "took longer"),
    ],
)
async def test_a_script_that_fails_teaches_nothing_and_leaves_no_process(
    script: Script, caplog: pytest.LogCaptureFixture, lines: str, complaint: str, tmp_path: Path
) -> None:
    where = ScriptLocations(
        script(f"echo $$ > {tmp_path}/pid\n{lines}"), timeout_s=0.3 if complaint == "took longer" else 10.0
    )
    heard: list[int] = []
    where.on_change(lambda: heard.append(1))
    assert not await where.resolve(["a", "b"])
    assert where.location_of("a") is None
    assert heard == []
    assert complaint in caplog.text
    assert_gone(tmp_path)


async def test_a_cancelled_look_up_ends_its_process(script: Script, tmp_path: Path) -> None:
    where = ScriptLocations(script(f"echo $$ > {tmp_path}/pid; sleep 60"))
    asking = asyncio.create_task(where.resolve(["a"]))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert_gone(tmp_path)


async def test_a_script_that_cannot_be_run_teaches_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not await ScriptLocations(str(tmp_path / "absent")).resolve(["a"])
    assert "cannot be run" in caplog.text
    assert await ScriptLocations(str(tmp_path / "absent")).resolve([])


def assert_gone(tmp_path: Path) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


# Configuration --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PL-10")
def test_a_script_that_is_not_there_leaves_the_default_rack_unless_racks_are_enforced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    absent = str(tmp_path / "absent")
    assert locations_from_config(ClientConfig()) is None
    assert locations_from_config(ClientConfig(placement=PlacementSettings(location_script=absent))) is None
    assert "not an executable file" in caplog.text
    with pytest.raises(ArgumentError, match="racks are enforced"):
        locations_from_config(
            ClientConfig(placement=PlacementSettings(location_script=absent, enforce_min_racks_per_write_quorum=True))
        )


def test_a_script_of_the_configuration_is_used(script: Script) -> None:
    path = script("echo /r1")
    assert isinstance(
        locations_from_config(ClientConfig(placement=PlacementSettings(location_script=path))), ScriptLocations
    )


def test_the_place_of_the_client_counts_unless_it_is_to_be_ignored() -> None:
    where = FixedLocations({"a": "/r1", "b": "/r1", "c": "/r2", "d": "/r2"})

    def racks_of_the_first(**options: Any) -> set[str | None]:
        config = ClientConfig(placement=PlacementSettings(client_location="/r2", **options))
        policy = policy_from_config(config, random.Random(1), locations=where)
        told(policy, "abcd")
        pair = LedgerShape(2, 2, 2)
        return {where.location_of((policy.new_ensemble(pair, NONE) or ("",))[0]) for _ in range(30)}

    assert isinstance(policy_from_config(ClientConfig(), random.Random(1)), RackAwarePlacement)
    assert racks_of_the_first() == {"/r2"}
    assert racks_of_the_first(ignore_local_node=True) == {"/r1", "/r2"}
    with pytest.raises(ArgumentError, match=r"placement\.client_location must be a path"):
        policy_from_config(ClientConfig(placement=PlacementSettings(client_location="r2")), random.Random(1))

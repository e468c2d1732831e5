"""The pytest plugin as authors of applications meet it: seeds, reports, other plugins for asynchronous tests."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from scenarios.history import History, HistoryError
from scenarios.replaying import origin_of, read_recorded
from tests.scenarios.testing.plugin_runs import ANYIO, ASYNCIO, run_pytest

pytest_plugins = "pytester"

_ROOT = Path(__file__).resolve().parents[3]

_APPLICATION = """
    import asyncio
    import bkclient
    import pytest

    async def publish(uri, acknowledged):
        async with bkclient.connect(uri) as bk:
            async with await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2) as writer:
                for number in range(10):
                    acknowledged.append(await writer.append(b"%d" % number))
                    await asyncio.sleep(60)

    async def test_application(bk_world):
        acknowledged = []
        app = bk_world.start("app", publish, bk_world.uri, acknowledged)
        await asyncio.sleep(100)
        bk_world.crash("bookie-2")
        await app.ended()
        assert bk_world.now > 600
        assert acknowledged == list(range(10))
"""
_FAILS_AT_2 = _APPLICATION + "        assert bk_world.seed != 2\n"


def test_entry_point_names_the_plugin() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"bkclient": "scenarios.testing.plugin"}
    assert hasattr(import_module("scenarios.testing.plugin"), "pytest_addoption")


def test_importing_the_plugin_imports_no_more_than_pytest_and_two_empty_packages() -> None:
    program = (
        "import sys, pytest, inspect, shlex, warnings; before = set(sys.modules); import scenarios.testing.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=_ROOT)
    assert done.stdout.split() == ["scenarios", "scenarios.testing", "scenarios.testing.plugin"]


@pytest.mark.parametrize("others", [(ASYNCIO,), (ASYNCIO, ANYIO), (ANYIO,), ()])
@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_runs_beside_other_plugins_for_asynchronous_tests(
    pytester: pytest.Pytester, others: tuple[str, ...], mode: str
) -> None:
    args = ["-o", f"asyncio_mode={mode}"] if ASYNCIO in others else []
    if ANYIO in others and ASYNCIO not in others:
        args += ["-o", f"anyio_mode={mode}"]
    result = run_pytest(pytester, _APPLICATION, "--bk-seeds=2", *args, others=others)
    result.assert_outcomes(passed=2)


def test_real_asynchronous_tests_stay_with_their_plugin(pytester: pytest.Pytester) -> None:
    source = """
        import asyncio
        import pytest

        async def test_real():
            assert not getattr(asyncio.get_running_loop(), "is_virtual", False)

        async def test_simulated(bk_world):
            assert asyncio.get_running_loop().is_virtual

        @pytest.mark.anyio
        async def test_of_anyio(anyio_backend, bk_world):
            assert anyio_backend == "asyncio" and asyncio.get_running_loop().is_virtual

        def test_synchronous(bk_world):
            async def body():
                await asyncio.sleep(1000)
            bk_world.run(body)
            assert bk_world.now >= 1000

        class TestMethods:
            async def test_method(self, bk_world):
                self.value = asyncio.get_running_loop().is_virtual
                assert self.value
    """
    result = run_pytest(pytester, source, "--bk-seeds=1", "-o", "asyncio_mode=auto", others=(ASYNCIO, ANYIO))
    result.assert_outcomes(passed=5)


def test_failure_tells_the_seed_keeps_the_history_and_is_replayed_by_its_command(pytester: pytest.Pytester) -> None:
    result = run_pytest(pytester, _FAILS_AT_2, "--bk-seeds=3")
    result.assert_outcomes(passed=2, failed=1)
    report = "\n".join(result.outlines)
    command = re.search(r"^again: +pytest (.*)$", report, re.MULTILINE)
    shown = re.search(r"^history: +bk-chaos show (.*)$", report, re.MULTILINE)
    digest = re.search(r"seed 2, ended after [\d.]+ virtual seconds, digest (\w+)", report)
    assert command is not None
    assert shown is not None
    assert digest is not None
    assert [path.name for path in (pytester.path / ".pytest_cache/d/bkclient").iterdir()] == [
        "test_app.py-test_application-2.bkh"
    ]

    path = pytester.path / shown[1]
    recorded = read_recorded(path)
    assert not recorded.violations
    assert recorded.digest.startswith(digest[1])
    kinds = [event.kind for event in History(path).events()]
    assert kinds.count("APP_ACK") == 10
    with pytest.raises(HistoryError, match="was recorded by a test; what makes it again is: pytest"):
        origin_of(History(path))

    again = run_pytest(pytester, _FAILS_AT_2, *shlex.split(command[1]))
    again.assert_outcomes(failed=1)
    assert f"digest {digest[1]}" in "\n".join(again.outlines), "the same history"


def test_passing_runs_keep_histories_if_asked(pytester: pytest.Pytester) -> None:
    result = run_pytest(pytester, _APPLICATION, "--bk-seeds=2", "--bk-keep=all", "--bk-histories=kept")
    result.assert_outcomes(passed=2)
    assert sorted(path.name for path in (pytester.path / "kept").iterdir()) == [
        "test_app.py-test_application-0.bkh",
        "test_app.py-test_application-1.bkh",
    ]


@pytest.mark.parametrize(
    ("marker", "args", "seeds"),
    [
        ("", [], range(10)),
        ("", ["-o", "bk_seeds=3"], range(3)),
        ("@pytest.mark.bk_world(seeds=2)", ["-o", "bk_seeds=3"], range(2)),
        ("@pytest.mark.bk_world(seeds=[5, 8])", [], [5, 8]),
        ("@pytest.mark.bk_world(seeds=2)", ["--bk-seeds=4"], range(4)),
        ("@pytest.mark.bk_world(seeds=2)", ["--bk-seed=7", "--bk-seed=9", "--bk-seed=7"], [7, 9]),
    ],
)
def test_where_seeds_come_from(
    pytester: pytest.Pytester, marker: str, args: list[str], seeds: range | list[int]
) -> None:
    source = f"import pytest\n{marker}\nasync def test_it(bk_world): pass"
    result = run_pytest(pytester, source, "--collect-only", "-q", *args)
    assert [line for line in result.outlines if "seed-" in line] == [
        f"test_app.py::test_it[seed-{seed}]" for seed in seeds
    ]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--bk-seeds=0"], "expected a whole number >= 1, got '0'"),
        (["--bk-seed=x"], "expected a whole number >= 0, got 'x'"),
        (["-o", "bk_seeds=many"], "expected a whole number >= 1, got 'many'"),
    ],
)
def test_wrong_options_are_refused(pytester: pytest.Pytester, args: list[str], problem: str) -> None:
    result = run_pytest(pytester, "async def test_it(bk_world): pass", *args)
    assert result.ret != 0
    assert problem in "\n".join([*result.outlines, *result.errlines])


def test_wrong_marker_is_refused(pytester: pytest.Pytester) -> None:
    source = "import pytest\n@pytest.mark.bk_world(bookies=0, seeds=1)\nasync def test_it(bk_world): pass"
    result = run_pytest(pytester, source)
    result.assert_outcomes(errors=1)
    assert "marker bk_world: bookies must be between 1 and 100, got 0" in "\n".join(result.outlines)


def test_asynchronous_fixtures_are_refused_and_those_of_every_test_are_not(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.fixture
        async def connection():
            yield 1

        @pytest.fixture
        def service(connection):
            return connection

        async def test_it(bk_world, service): pass
    """
    result = run_pytest(pytester, source, "--bk-seeds=1", "-o", "asyncio_mode=auto")
    result.assert_outcomes(errors=1)
    assert "fixture 'connection' is asynchronous" in "\n".join(result.outlines)


def test_real_clocks_and_chance_are_named_by_file_and_line(pytester: pytest.Pytester) -> None:
    source = """
        import random
        import time

        async def test_it(bk_world):
            time.time()
            assert random.random() > 2
    """
    result = run_pytest(pytester, source, "--bk-seeds=2", "--bk-audit=all")
    report = "\n".join(result.outlines)
    assert "test_app.py:5: time.time is a real clock" in report
    assert "test_app.py:6: random.random is real chance" in report
    passing = source.replace("> 2", "< 2")
    result = run_pytest(pytester, passing, "--bk-seeds=2")
    result.assert_outcomes(passed=2)
    assert len([line for line in result.outlines if "RealWorldWarning: " in line]) == 2
    strict = run_pytest(pytester, passing, "--bk-seeds=2", "-W", "error::scenarios.testing.RealWorldWarning")
    strict.assert_outcomes(failed=1, passed=1)
    assert not [line for line in run_pytest(pytester, passing, "--bk-audit=off").outlines if "real clock" in line]


def test_broken_promise_of_the_client_fails_the_test(pytester: pytest.Pytester) -> None:
    source = """
        import bkclient
        from scenarios.mutants import RUN_MUTANTS

        async def test_it(bk_world):
            with RUN_MUTANTS["ack-quorum-one-short"].applied_to_run():
                async with bkclient.connect(bk_world.uri) as bk:
                    writer = await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
                    for number in range(20):
                        await writer.append(b"%d" % number)
                    await writer.close()
    """
    result = run_pytest(pytester, source, "--bk-seeds=1")
    result.assert_outcomes(failed=1)
    report = "\n".join(result.outlines)
    assert "the client broke what ledgers and logs promise, which is a defect of bkclient:" in report
    assert "again:    pytest" in report


def test_tests_without_the_fixtures_are_left_alone(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.fixture
        def world():
            return "of somebody else"

        def test_it(world, request):
            assert world == "of somebody else"
            assert type(request.node) is pytest.Function
    """
    run_pytest(pytester, source).assert_outcomes(passed=1)


def test_cluster_over_tcp_and_its_scope(pytester: pytest.Pytester) -> None:
    source = """
        import asyncio, bkclient, pytest
        seen = []

        async def append(uri):
            async with bkclient.connect(uri) as bk, await bk.create_ledger() as writer:
                return await writer.append(b"real")

        @pytest.mark.parametrize("turn", [1, 2])
        async def test_asynchronous(bk_cluster, turn):
            seen.append(bk_cluster.uri)
            bk_cluster.kill(bk_cluster.bookies[0])
            assert await append(bk_cluster.uri) == 0
            bk_cluster.restart(bk_cluster.bookies[0])

        def test_synchronous(bk_cluster):
            seen.append(bk_cluster.uri)
            assert asyncio.run(append(bk_cluster.uri)) == 0
            assert len(set(seen)) == {count}
    """
    run_pytest(pytester, source.replace("{count}", "3"), "-o", "asyncio_mode=auto").assert_outcomes(passed=3)
    args = ("-o", "asyncio_mode=auto", "-o", "bk_cluster_scope=module")
    run_pytest(pytester, source.replace("{count}", "1"), *args).assert_outcomes(passed=3)
    result = run_pytest(pytester, source, "-o", "bk_cluster_scope=galaxy")
    assert "bk_cluster_scope must be function, module or session, got 'galaxy'" in "\n".join(
        [*result.outlines, *result.errlines]
    )

"""The pytest plugin: fixtures ``bk_world`` and ``bk_cluster`` for tests of applications (docs/using/testing.md).

A test that uses ``bk_world``, itself or by a fixture, is run once for each seed, in virtual time if it is asynchronous, whatever
plugin runs other asynchronous tests. One that fails keeps its history, and its report says how to run just it again.

pytest imports this module wherever the package is installed. So it imports nothing else of it before a fixture is used, touches
no test without one of the fixtures, and its names all begin with ``bk``.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from scenarios.model import Violation
    from scenarios.testing.cluster import TcpCluster
    from scenarios.testing.entropy import Audit
    from scenarios.testing.world import SimulatedWorld

__all__ = ["SimulatedFunction", "bk_cluster", "bk_world"]

_FIXTURE: Final = "bk_world"
_SEEDS_DEFAULT: Final = 10
_MARKER: Final = (
    "bk_world(seeds=10, **options): for tests with the fixture bk_world: how many seeds, or which, and the options of "
    "scenarios.testing.WorldOptions: bookies, rough, bytes_on_the_wire, limit_s"
)
_FILE_NAME_MAX: Final = 150
_AUDIT: Final = pytest.StashKey["Audit"]()
_FAILED: Final = pytest.StashKey[bool]()


# Options ---------------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, all of them beginning with ``--bk-``."""
    group = parser.getgroup("bkclient", "simulated BookKeeper clusters (bkclient)")
    group.addoption("--bk-seeds", type=_count, metavar="N", help="run each test with bk_world for the seeds 0 to N-1")
    group.addoption(
        "--bk-seed",
        type=_seed,
        action="append",
        metavar="S",
        help="run each test with bk_world for this seed only; repeatable",
    )
    group.addoption("--bk-histories", metavar="DIR", help="keep the histories here, instead of in pytest's cache")
    group.addoption(
        "--bk-keep", choices=("failed", "all"), default="failed", help="which histories to keep (default: failed)"
    )
    group.addoption(
        "--bk-audit",
        choices=("first", "all", "off"),
        default="first",
        help="for which seeds of a test to look for real clocks and real chance in the code (default: first)",
    )
    parser.addini(
        "bk_seeds", f"seeds of each test with bk_world, unless its marker says so (default: {_SEEDS_DEFAULT})"
    )
    parser.addini(
        "bk_cluster_scope", "the scope of the fixture bk_cluster: function, module or session", default="function"
    )


def _count(text: str) -> int:
    return _number(text, 1)


def _seed(text: str) -> int:
    return _number(text, 0)


def _number(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise pytest.UsageError(f"expected a whole number >= {least}, got {text!r}")
    return number


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line("markers", _MARKER)
    config.addinivalue_line("markers", "bk_cluster(bookies=4): for tests with the fixture bk_cluster: how many bookies")


def _seeds(config: pytest.Config, marker: pytest.Mark | None) -> list[int]:
    """The seeds of a test: of the command line, else of its marker, else of the configuration."""
    if chosen := config.getoption("bk_seed"):
        return list(dict.fromkeys(chosen))
    wanted = config.getoption("bk_seeds")
    if wanted is None and marker is not None:
        wanted = marker.kwargs.get("seeds")
    if wanted is None:
        wanted = _count(config.getini("bk_seeds") or str(_SEEDS_DEFAULT))
    seeds = list(range(wanted)) if isinstance(wanted, int) else list(wanted)
    if not seeds or not all(isinstance(seed, int) and seed >= 0 for seed in seeds):
        raise pytest.UsageError(f"bk_world: seeds must be a number >= 1 or numbers >= 0, got {wanted!r}")
    return seeds


# Collecting ------------------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test with ``bk_world`` its seeds."""
    if _FIXTURE in metafunc.fixturenames:
        seeds = _seeds(metafunc.config, metafunc.definition.get_closest_marker(_FIXTURE))
        ids = [f"seed-{seed}" for seed in seeds]
        metafunc.parametrize(_FIXTURE, seeds, ids=ids, indirect=True, scope="function")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Make tests with ``bk_world`` ordinary ones before other plugins see them, which would run them on loops of their own."""
    found = yield
    if not isinstance(found, list):
        return found
    return [_simulated(node) if _is_simulated(node) else node for node in found if not _is_for_trio(node)]


def _is_simulated(node: object) -> bool:
    return type(node) is pytest.Function and _FIXTURE in node.fixturenames


def _is_for_trio(node: object) -> bool:
    """Whether anyio's plugin asked for this test on trio: in a world there is the world's own loop only."""
    if not isinstance(node, pytest.Function) or not _is_simulated(node):
        return False
    backend: Any = node.callspec.params.get("anyio_backend", "asyncio")
    return bool((backend if isinstance(backend, str) else backend[0]) != "asyncio")


def _simulated(function: pytest.Function) -> SimulatedFunction:
    made = SimulatedFunction.from_parent(
        function.parent,
        name=function.name,
        callspec=function.callspec,
        callobj=function.obj,
        fixtureinfo=function._fixtureinfo,  # noqa: SLF001  as other plugins that replace items do
        keywords=function.keywords,
        originalname=function.originalname,
    )
    made.own_markers = function.own_markers
    return made


class SimulatedFunction(pytest.Function):
    """A test with ``bk_world``. For pytest it is an ordinary function, which runs the world."""

    _shown: tuple[Any, Callable[..., None]] | None = None

    @property
    def obj(self) -> Any:
        """What pytest calls."""
        inner = super().obj
        if self._shown is None or self._shown[0] is not inner:
            self._shown = (inner, self._wrapped(inner))
        return self._shown[1]

    @obj.setter
    def obj(self, value: Any) -> None:
        self._obj = value

    def setup(self) -> None:
        """Refuse asynchronous fixtures: other plugins would run them on a real event loop."""
        if name := _async_fixture(self):
            pytest.fail(
                f"fixture {name!r} is asynchronous, and a test with bk_world runs in a simulated world, not on the event loop "
                f"of that fixture: do in the test, inside the world, what it does",
                pytrace=False,
            )
        super().setup()

    def _wrapped(self, inner: Callable[..., Any]) -> Callable[..., None]:
        @wraps(inner)
        def simulated(*args: Any, **kwargs: Any) -> None:
            world: SimulatedWorld = self.funcargs[_FIXTURE]  # type: ignore[assignment]
            try:
                if inspect.iscoroutinefunction(inner):
                    world.run(wraps(inner)(lambda: inner(*args, **kwargs)))
                else:
                    inner(*args, **kwargs)
            finally:
                violations = world.finish()
            if violations:
                pytest.fail("\n".join(_broken(violations)), pytrace=False)
            _warn(self.stash[_AUDIT])

        return simulated


def _broken(violations: Iterable[Violation]) -> list[str]:
    """What is said of clauses that a run broke."""
    told = [f"  {found.name}, ledger {found.ledger}: {found.witness}" for found in violations]
    return ["the client broke what ledgers and logs promise, which is a defect of bkclient:", *told] if told else []


def _async_fixture(item: pytest.Function) -> str | None:
    """An asynchronous fixture that the test asks for, perhaps by others; those that are there for every test do not count."""
    info = item._fixtureinfo  # noqa: SLF001  there is no public way to ask before they are set up
    names, seen = list(info.argnames), set[str]()
    while names:
        name = names.pop()
        definitions = info.name2fixturedefs.get(name)
        if name in seen or not definitions:
            continue
        seen.add(name)
        function = definitions[-1].func
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            return name
        names += definitions[-1].argnames
    return None


def _is_audited(request: pytest.FixtureRequest) -> bool:
    which = request.config.getoption("bk_audit")
    return bool(which == "all" or (which == "first" and getattr(request, "param_index", 0) == 0))


def _warn(audit: Audit) -> None:
    from scenarios.testing.entropy import RealWorldWarning  # noqa: PLC0415  see the docstring of the module

    for use in audit.uses:
        warnings.warn_explicit(use.sentence, RealWorldWarning, use.file, use.line)


# Reporting -------------------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say in the report of a failed test how to run it again, and keep its history."""
    report = yield
    if isinstance(item, SimulatedFunction) and call.when == "call" and report.failed:
        world: SimulatedWorld = item.funcargs[_FIXTURE]  # type: ignore[assignment]
        item.stash[_FAILED] = True
        error = None if call.excinfo is None else call.excinfo.value
        report.sections.append(
            (
                "simulated world",
                _story(item, world, item.stash[_AUDIT], call_says_so=isinstance(error, pytest.fail.Exception)),
            )
        )
    return report


def _story(item: pytest.Item, world: SimulatedWorld, audit: Audit, *, call_says_so: bool) -> str:
    path = world.history
    lines = [
        f"seed {world.seed}, ended after {world.now:.6f} virtual seconds, digest {world.digest[:16]}",
        f"again:    {_replay_command(item, world.seed)}",
        f"history:  bk-chaos show {shlex.quote(_short(path))}" if path is not None else "",
    ]
    if not call_says_so:
        lines += _broken(world.finish())
    if audit.uses:
        lines.append("What the seed does not decide, so that the run may not repeat itself:")
        lines += [f"  {_short(Path(use.file))}:{use.line}: {use.sentence}" for use in audit.uses]
    return "\n".join(filter(None, lines))


def _replay_command(item: pytest.Item, seed: int) -> str:
    """The command that runs exactly this test with this seed."""
    file, colons, rest = str(item.nodeid).partition("::")
    path = os.path.relpath(item.config.rootpath / file, item.config.invocation_params.dir)
    return f"pytest {shlex.quote(f'{Path(path).as_posix()}{colons}{rest}')} --bk-seed {seed}"


def _short(path: Path) -> str:
    """A path from where pytest runs, if it is below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


# Fixtures --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bk_world(request: pytest.FixtureRequest) -> Iterator[SimulatedWorld]:
    """A simulated cluster and the processes of an application in virtual time (:class:`scenarios.testing.SimulatedWorld`)."""
    from scenarios.testing.entropy import Audit  # noqa: PLC0415  see the docstring of the module
    from scenarios.testing.world import SimulatedWorld, WorldOptions  # noqa: PLC0415

    marker = request.node.get_closest_marker(_FIXTURE)
    chosen = {} if marker is None else {name: value for name, value in marker.kwargs.items() if name != "seeds"}
    try:
        options = WorldOptions(**chosen)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"marker bk_world: {error}") from error
    seed = getattr(request, "param", None)
    if seed is None:  # asked for while the test runs
        seed = _seeds(request.config, marker)[0]
    path = _history_folder(request) / _file_name(request.node.nodeid, seed)
    audit = request.node.stash[_AUDIT] = Audit()
    world = SimulatedWorld(
        seed,
        options=options,
        name=request.node.nodeid,
        history=path,
        header={"replay": _replay_command(request.node, seed)},
        audit=audit if _is_audited(request) else None,
    )
    try:
        yield world
    finally:
        world.close()
        if request.config.getoption("bk_keep") == "failed" and not request.node.stash.get(_FAILED, False):
            path.unlink(missing_ok=True)


def _history_folder(request: pytest.FixtureRequest) -> Path:
    given = request.config.getoption("bk_histories")
    if given is not None:
        return Path(request.config.invocation_params.dir, str(given)).resolve()
    cache = getattr(request.config, "cache", None)
    if cache is not None:
        return Path(cache.mkdir("bkclient"))
    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    return factory.mktemp("bkclient")


def _file_name(nodeid: str, seed: int) -> str:
    base = nodeid.replace("\\", "/").rpartition("/")[2].removesuffix(f"[seed-{seed}]")
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", base).strip("-")[-_FILE_NAME_MAX:]
    return f"{name}-{seed}.bkh"


def _cluster_scope(fixture_name: str, config: pytest.Config) -> str:  # noqa: ARG001  pytest calls it by keywords
    scope = config.getini("bk_cluster_scope")
    if scope not in {"function", "module", "session"}:
        raise pytest.UsageError(f"bk_cluster_scope must be function, module or session, got {scope!r}")
    return str(scope)


@pytest.fixture(scope=_cluster_scope)  # type: ignore[arg-type]
def bk_cluster(request: pytest.FixtureRequest) -> Iterator[TcpCluster]:
    """Bookies and a ZooKeeper over real TCP, in memory, in a thread (:class:`scenarios.testing.TcpCluster`)."""
    from scenarios.testing.cluster import TcpCluster  # noqa: PLC0415  see the docstring of the module

    marker = request.node.get_closest_marker("bk_cluster")
    with TcpCluster(4 if marker is None else marker.kwargs.get("bookies", 4)) as cluster:
        yield cluster

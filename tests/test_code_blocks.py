"""Every block of Python or shell on a page is executed by a test, with the imports that it shows; exceptions are counted here."""

from __future__ import annotations

import ast
import asyncio
import builtins
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bkclient
from simbookie.cluster import memory_cluster
from tests.test_links import PAGES
from tests.test_tidy import ROOT
from tests.test_tutorial import FOLLOWED, PAGES_OF_BLOCKS

BLOCK = re.compile(r"^```(python|sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CERTIFICATES = ROOT / "tests" / "certificates"

#: Pages whose blocks of Python are run by the test below, and how many each has.
RUN_HERE = {
    "docs/reference/errors.md": 1,
    "docs/using/configuration.md": 3,
    "docs/using/observability.md": 3,
    "docs/using/repair.md": 2,
    "docs/using/security.md": 3,
}
#: Pages whose blocks have a test of their own, which takes them from the page.
ELSEWHERE = {
    "README.md": "tests/test_readme.py",
    "docs/inside/exhaustive-search.md": "tests/scenarios/test_traced_plans.py",
    "docs/reference/history-format.md": "tests/scenarios/test_history_format_page.py",
    "docs/using/development-cluster.md": "tests/simbookie/zookeeper/test_page.py",
    "docs/using/placement.md": "tests/bkclient/placement/test_placement_page.py",
    "docs/using/recovery.md": "tests/bkclient/_client/test_recover_retry.py",
    "docs/using/sync.md": "tests/bkclient/sync/test_sync_page.py",
    "docs/using/testing.md": "tests/scenarios/testing/test_page.py",
}
#: Blocks that no test executes, by page, with the reason.
EXCEPTIONS = {
    "docs/using/security.md": {
        "sh": (3, "commands of keytool and openssl, and a bookie that serves until it is stopped"),
    },
}


def blocks() -> dict[str, list[tuple[str, str]]]:
    """The blocks of every page that has any: language and text."""
    found = {page.relative_to(ROOT).as_posix(): BLOCK.findall(page.read_text(encoding="utf-8")) for page in PAGES}
    return {name: shown for name, shown in found.items() if shown}


def test_every_block_is_executed_somewhere_or_a_counted_exception() -> None:
    known = {f"docs/{name}" for name in (*FOLLOWED, *PAGES_OF_BLOCKS)}
    for name, shown in blocks().items():
        excepted = EXCEPTIONS.get(name, {})
        for language, (count, _) in excepted.items():
            assert sum(kind == language for kind, _ in shown) == count, name
        left = [kind for kind, _ in shown if kind not in excepted]
        if name in RUN_HERE:
            assert left == ["python"] * RUN_HERE[name], name
        elif name in ELSEWHERE:
            test = (ROOT / ELSEWHERE[name]).read_text(encoding="utf-8")
            assert Path(name).name in test or "README" in test, f"{ELSEWHERE[name]} does not look at {name}"
        else:
            assert name in known, f"no test executes the blocks of {name}"
    assert sum(count for page in EXCEPTIONS.values() for count, _ in page.values()) == 3


@pytest.mark.parametrize("name", [*RUN_HERE, *(f"docs/{name}" for name in PAGES_OF_BLOCKS)])
def test_a_page_says_what_the_names_are_that_its_blocks_do_not_define(name: str) -> None:
    page, known = (ROOT / name).read_text(encoding="utf-8"), {*vars(builtins)}
    for block in BLOCK.finditer(page):
        if block[1] == "python":
            for given in sorted(names_given(block[2]) - known):
                told = rf"`{given}`(, `\w+`)*( and `\w+`)? (is|are)\s"
                assert re.search(told, page[: block.start()]), f"{name} does not say what `{given}` is"
            known |= names_made(block[2])


def names_made(text: str) -> set[str]:
    """What a block defines at its top, with the names of its ``with`` and ``for``, but not inside its functions and classes."""
    made: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            made.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            made |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            made.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            made.add(node.name)
        waiting += ast.iter_child_nodes(node)
    return made


def names_given(text: str) -> set[str]:
    """What a block uses and does not define anywhere, inside functions too."""
    nodes = list(ast.walk(ast.parse(text)))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    inner = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    inner |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    return used - inner - names_made(text) - {node.arg for node in nodes if isinstance(node, ast.arg)}


def test_names_that_blocks_do_not_define_are_found() -> None:
    text = (
        "import a.b as c\nasync def f(x):\n    y = x\n    return y, g\nasync with c(bk) as d:\n    print(await f(d))\n"
    )
    assert names_given(text) - {*vars(builtins)} == {"bk", "g"}
    assert names_made(text) == {"c", "f", "d"}


@pytest.fixture(autouse=True)
def _levels_as_before() -> Iterator[None]:
    """Pages show how to set levels of loggers, which are those of this process."""
    loggers = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    levels = [(each, each.level) for each in loggers]
    yield
    for logger, level in levels:
        logger.setLevel(level)


@pytest.mark.parametrize("name", RUN_HERE)
async def test_the_blocks_of_a_page_run_in_their_order(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "observability" in name:
        pytest.importorskip("prometheus_client")
        pytest.importorskip("opentelemetry")
    page = (ROOT / name).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)  # the logging of this process is pytest's
    files_of(page)
    async with memory_cluster() as uri, bkclient.connect(uri) as bk:
        closed = await bk.create_ledger()
        async with closed:
            await closed.append(b"x")
        writer = await bk.create_ledger()
        given = {"uri": uri, "writer": writer, "payload": b"x", "ledger_id": closed.ledger_id, "secret": b"x" * 32}
        for language, text in BLOCK.findall(page):
            if language == "python":
                await executed(text.replace('"zk://zk1:2181/ledgers"', "uri"), given)
        await writer.close()


def files_of(page: str) -> None:
    """Make the files, in this folder, that blocks of the page read."""
    for settings in re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        Path("settings.toml").write_text(settings)
    Path("bookkeeper.conf").write_text("addEntryTimeoutSec=2\n")
    Path("password").write_text("x")
    for source, copy in (
        ("authority.pem", "ca.pem"),
        ("client.pem", "client.pem"),
        ("client-key.pem", "client-key.pem"),
    ):
        shutil.copyfile(CERTIFICATES / source, copy)


async def executed(text: str, scope: dict[str, Any]) -> None:
    """Run a block; one that runs for ever is ended after a moment."""
    running = eval(compile(text, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), scope)
    if running is None:
        return
    try:
        async with asyncio.timeout(0.5 if "run_auto_recovery" in text else 30):
            await running
    except TimeoutError:
        assert "run_auto_recovery" in text

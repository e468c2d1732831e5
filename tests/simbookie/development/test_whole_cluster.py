"""``bk-sim cluster --ui --commands`` itself: its processes, its terminal, its page in a browser."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any

import pytest

import bkclient
from bkclient import ClientConfig, TimeoutSettings
from bkclient.errors import BookKeeperError
from tests.ports import free_port
from tests.test_readme import ENVIRONMENT

pytestmark = pytest.mark.deep
_OPTIONS = ("--bookies", "3", "--zookeeper", "embedded", "--ui", "--ui-port", "0", "--commands", "--json")
_WAIT_S = 30.0


@contextmanager
def cluster() -> Iterator[tuple[dict[str, Any], IO[bytes], IO[bytes]]]:
    """What it announced, where commands go, and what it says."""
    command = [sys.executable, "-m", "simbookie.cli", "cluster", *_OPTIONS, "--zookeeper-port", str(free_port())]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            yield json.loads(process.stdout.readline()), process.stdin, process.stderr
            process.terminate()
            assert process.wait(_WAIT_S) == 0
        finally:
            process.kill()


def until(said: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not said():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def appended(uri: str) -> int:
    config = ClientConfig(timeouts=TimeoutSettings(add_s=1.0))
    async with (
        bkclient.connect(uri, config=config) as bk,
        await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3) as writer,
    ):
        await writer.append(b"x")
    return writer.ledger_id


async def entries(uri: str, ledger_id: int) -> list[bytes]:
    async with bkclient.connect(uri) as bk:
        reader = await bk.open_ledger(ledger_id)
        return [bytes(entry.payload) async for entry in reader.read_range(0, reader.last_add_confirmed)]


def test_bookies_are_broken_and_mended_by_commands_and_keep_what_they_had() -> None:
    with cluster() as (facts, commands, said):
        uri = facts["metadata"]
        assert [bookie["bookie_id"] for bookie in facts["bookies"]] == ["bookie-0", "bookie-1", "bookie-2"]

        def tell(line: str, answer: str) -> None:
            commands.write(f"{line}\n".encode())
            commands.flush()
            while (got := said.readline().decode().strip()) != answer:
                assert got.startswith("bookie bookie-"), (
                    f"{line} was answered by {got!r}"
                )  # one that ended is told, too

        ledger_id = asyncio.run(appended(uri))
        for bookie in range(3):
            tell(f"crash {bookie}", f"crash: bookie-{bookie}")
        for bookie in range(3):
            tell(f"restart {bookie}", f"restart: bookie-{bookie}")
        assert asyncio.run(entries(uri, ledger_id)) == [b"x"]

        tell("partition 0", "partition: bookie-0")
        with pytest.raises(BookKeeperError):  # three of three are needed, and there is no other one
            asyncio.run(appended(uri))
        tell("add", "add: bookie-3")
        tell("pause 1", "pause: bookie-1")
        tell("resume 1", "resume: bookie-1")
        tell("heal 0", "heal: bookie-0")
        asyncio.run(appended(uri))

        with urllib.request.urlopen(f"{facts['page']}state", timeout=10) as answer:
            state = json.load(answer)
        assert [bookie["state"] for bookie in state["bookies"]] == ["running"] * 4
        assert state["bookies"][0]["values"]["journal_syncs"] > 0
        assert len(state["ledgers"]) == 3


def told(page: Any, times: int) -> bool:
    """Whether the page tells of so many restarts; by asking, for the page allows no code but its own."""
    return str(page.inner_text("#done")).count("restart bookie-1") == times


def test_the_page_is_used_in_a_browser_by_keyboard_at_any_width() -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra dev")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("this machine has no Chromium")
    with cluster() as (facts, _, _), playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            for times, width in enumerate((1280, 390), 1):
                page = browser.new_page(viewport={"width": width, "height": 800})
                problems: list[str] = []
                page.on("console", lambda message, to=problems: to.append(message.text))
                page.on("pageerror", lambda error, to=problems: to.append(str(error)))
                page.goto(facts["page"])
                page.wait_for_selector("#link.live")
                page.wait_for_selector("article.running >> nth=2")
                element = "document.documentElement"
                assert page.evaluate(f"{element}.scrollWidth <= {element}.clientWidth"), "the page scrolls sideways"
                for name, state in (("Crash", "crashed"), ("Restart", "running")):
                    label = f"{name} bookie-1"
                    for _ in range(60):
                        page.keyboard.press("Tab")
                        if page.evaluate("document.activeElement.getAttribute('aria-label')") == label:
                            break
                    page.keyboard.press("Enter")
                    page.wait_for_selector(f'article.{state}[aria-label="bookie bookie-1"]')
                    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == label, "focus was lost"
                    page.evaluate("document.activeElement.blur(); document.querySelector('.skip').focus()")
                until(partial(told, page, times))
                assert problems == []
                page.close()
        finally:
            browser.close()

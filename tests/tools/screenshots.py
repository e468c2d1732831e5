"""Looks at the documentation site and at the pages of our commands in a browser, and keeps pictures in ``build/screenshots``.

    python -m tests.tools.screenshots [--no-build] [--only site|cluster|reports]

Every page of the site is opened at desktop and phone width, in light and dark. None may scroll sideways, write to the console, or
ask another machine for anything. The site's skip link, the order of its controls, its search, its theme switch and, on a phone,
its menu are used by keyboard. The pages of ``bk-sim cluster --ui``, ``bk-chaos run --html`` and ``bk-verify report`` are looked
at in the same way.
Needs playwright (of the extra dev) and a Chromium of the machine; ends with 1 if something is wrong, after taking all pictures.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import bkclient
from bkclient.log import Logs
from tests.tools.following import ROOT

FOLDER: Final = ROOT / "build" / "screenshots"
_SITE: Final = ROOT / "build" / "site"
_SIZES: Final = {"desktop": (1280, 900), "phone": (390, 844)}
_SCHEMES: Final = ("light", "dark")
#: Pages of the site of which there are pictures; all others are looked at, too.
_PICTURED: Final = (
    "index",
    "start/five-minutes",
    "start/concepts",
    "guides/application",
    "using/testing",
    "using/log",
    "using/commands",
    "api/index",
    "api/bkclient",
    "reference/errors",
    "catalogue/scenarios",
    "catalogue/clauses",
    "inside/performance",
)
_TABS_MAX: Final = 400
_WAIT_S: Final = 60.0
#: How long a drawer of the site slides, and some more.
_SLIDE_MS: Final = 600
#: Pixels that words are high at least.
_LETTERS_MIN: Final = 10


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        """A page that names no icon has none."""
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of ``folder`` on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Look:
    """Pages in one browser, and what was found wrong with them."""

    browser: Any
    problems: list[str] = field(default_factory=list)
    pictures: int = 0

    @contextmanager
    def window(self, base: str, size: str, scheme: str) -> Iterator[Any]:
        """A page of this size in this scheme, of which everything that it complains about is a problem."""
        width, height = _SIZES[size]
        context = self.browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        page = context.new_page()

        def wrong(what: str) -> None:
            self.problems.append(f"{page.url.removeprefix(base) or 'the first page'}, {size}, {scheme}: {what}")

        def on_request(request: Any) -> None:
            if not request.url.startswith((base, "data:", "blob:")):
                wrong(f"asks for {request.url}")

        def on_console(message: Any) -> None:
            if message.type in {"error", "warning"}:
                wrong(f"writes to the console: {message.text}")

        page.on("request", on_request)
        page.on("console", on_console)
        page.on("pageerror", lambda error: wrong(f"fails: {error}"))
        page.wrong = wrong
        try:
            yield page
        finally:
            context.close()

    def check_width(self, page: Any) -> None:
        """Note a page that scrolls sideways, and what sticks out."""
        root = "document.documentElement"
        if page.evaluate(f"{root}.scrollWidth > {root}.clientWidth"):
            wide = page.evaluate(
                "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
                ".slice(0, 3).map(e => e.tagName + '.' + e.className)"
            )
            page.wrong(f"scrolls sideways because of {', '.join(wide)}")

    def check_scrolled(self, page: Any, selector: str) -> None:
        """Note an element whose content is wider than it is, where all of it should be seen at once."""
        if page.evaluate(
            "s => { const e = document.querySelector(s); return e.scrollWidth > e.clientWidth; }", selector
        ):
            page.wrong(f"{selector} is narrower than what is in it")

    def take(self, page: Any, name: str, *, whole: bool = False) -> None:
        """Keep a picture."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(FOLDER / f"{name}.png"), full_page=whole)
        self.pictures += 1


# The site --------------------------------------------------------------------------------------------------------------


def look_at_site(look: Look) -> None:
    """Every page at every size; in the dark only those of which there are pictures."""
    names = sorted(path.relative_to(_SITE).with_suffix("").as_posix() for path in _SITE.rglob("*.html"))
    missing = {*_PICTURED} - {*names}
    if missing:
        look.problems.append(f"the site has no page {', '.join(sorted(missing))}")
    with served(_SITE) as base:
        for size in _SIZES:
            for scheme in _SCHEMES:
                with look.window(base, size, scheme) as page:
                    for name in names if scheme == "light" else _PICTURED:
                        page.goto(f"{base}{name}.html")
                        look.check_width(page)
                        if name in _PICTURED:
                            look.take(page, f"site-{name.replace('/', '-')}-{size}-{scheme}")
        use_by_keyboard(look, base)
        use_drawers_by_keyboard(look, base)


def _press_until(page: Any, selector: str) -> bool:
    """Tab to an element; false if it does not get the focus."""
    for _ in range(_TABS_MAX):
        page.keyboard.press("Tab")
        if page.evaluate("s => !!document.activeElement && document.activeElement.matches(s)", selector):
            return True
    return False


def use_by_keyboard(look: Look, base: str) -> None:
    """The controls of the site, without a mouse."""
    with look.window(base, "desktop", "light") as page:
        page.goto(f"{base}start/concepts.html")
        page.keyboard.press("Tab")
        if not page.evaluate("document.activeElement.classList.contains('skip-to-content')"):
            page.wrong("the first thing that Tab comes to is no skip link")
        else:
            page.wait_for_function("document.activeElement.getBoundingClientRect().top >= 0")  # it moves into view
        look.take(page, "site-keyboard-skip-link")
        page.keyboard.press("Enter")
        page.wait_for_function("location.hash === '#furo-main-content'")

        page.goto(f"{base}start/concepts.html")
        for selector, name in (
            (".sidebar-search", "the search"),
            (".sidebar-tree a", "the navigation"),
            ("article a", "the text"),
        ):
            if not _press_until(page, selector):
                page.wrong(f"Tab does not come to {name}")
            elif not page.evaluate(
                "(() => { const s = getComputedStyle(document.activeElement);"
                " return s.outlineStyle !== 'none' || s.boxShadow !== 'none' || document.activeElement.matches('input'); })()"
            ):
                page.wrong(f"nothing shows that {name} has the focus")

        page.goto(f"{base}start/concepts.html")
        _press_until(page, ".sidebar-search")
        page.keyboard.type("fencing")
        page.keyboard.press("Enter")
        try:
            page.wait_for_selector("#search-results li a", timeout=20_000)
        except Exception as error:  # noqa: BLE001  playwright's own, which is not imported here
            page.wrong(f"the search finds nothing: {error}")
        look.take(page, "site-keyboard-search")

        page.goto(f"{base}start/concepts.html")
        before = page.evaluate("document.body.dataset.theme")
        if _press_until(page, ".theme-toggle"):
            page.keyboard.press("Enter")
            if page.evaluate("document.body.dataset.theme") == before:
                page.wrong("the theme switch does nothing")
            page.keyboard.press("Enter")
            look.take(page, "site-keyboard-theme")
        else:
            page.wrong("Tab does not come to the theme switch")


def _is_drawn(page: Any, drawer: str) -> bool:
    """Whether a drawer is in view, at last."""
    page.wait_for_timeout(_SLIDE_MS)
    shown: bool = page.evaluate(
        "s => { const b = document.querySelector(s).getBoundingClientRect(); return b.right > 1 && b.left < innerWidth - 1; }",
        drawer,
    )
    return shown


def _open_and_close(look: Look, page: Any, icon: str, drawer: str, name: str) -> None:
    """By the keys that press a button, and by Escape; ``icon`` has the focus before and after."""
    for key in ("Enter", "Space"):
        page.keyboard.press(key)
        if not _is_drawn(page, drawer) or page.get_attribute(icon, "aria-expanded") != "true":
            page.wrong(f"{key} does not open the {name}, or does not tell")
        if not page.evaluate("s => document.activeElement.closest(s) !== null", drawer):
            page.wrong(f"the {name} that was opened by {key} does not have the focus")
        look.take(page, f"site-keyboard-{name}")
        page.keyboard.press("Escape")
        if _is_drawn(page, drawer) or page.get_attribute(icon, "aria-expanded") != "false":
            page.wrong(f"Escape does not close the {name}, or does not tell")
        if not page.evaluate("s => document.activeElement.matches(s)", icon):
            page.wrong(f"the focus does not come back from the {name}")


def _follow_link(page: Any, drawer: str, name: str) -> None:
    """Open a drawer by its icon, which has the focus, and go where one of its links leads."""
    page.keyboard.press("Enter")
    if not _press_until(page, f"{drawer} a[href]:not([href='#'])"):
        page.wrong(f"Tab does not come to a link of the {name}")
        return
    before = page.url
    page.keyboard.press("Enter")
    page.wait_for_function("before => location.href !== before", arg=before)
    if _is_drawn(page, drawer):
        page.wrong(f"the {name} stays over the page that it led to")


def _walk(page: Any) -> None:
    """Through everything that Tab comes to while all drawers are closed."""
    for _ in range(_TABS_MAX):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            return
        if page.evaluate(
            "(() => { const b = document.activeElement.getBoundingClientRect();"
            " return document.activeElement.matches('aside *') && (b.right <= 0 || b.left >= innerWidth); })()"
        ):
            page.wrong("Tab comes to links of a drawer that is closed")
            return


def use_drawers_by_keyboard(look: Look, base: str) -> None:
    """On a phone the navigation and the contents are drawers: opened, walked through and closed without a mouse."""
    with look.window(base, "phone", "light") as page:
        for icon, drawer, name in (
            (".nav-overlay-icon", ".sidebar-drawer", "menu"),
            (".toc-header-icon", ".toc-drawer", "contents"),
        ):
            page.goto(f"{base}start/concepts.html")
            if _press_until(page, icon):
                _open_and_close(look, page, icon, drawer, name)
                _follow_link(page, drawer, name)
            else:
                page.wrong(f"Tab does not come to what opens the {name}")
        page.goto(f"{base}start/concepts.html")
        _walk(page)


# The cluster -----------------------------------------------------------------------------------------------------------


@contextmanager
def _cluster() -> Iterator[dict[str, Any]]:
    options = ("--bookies", "4", "--zookeeper", "embedded", "--ui", "--ui-port", "0", "--json")
    command = [sys.executable, "-m", "simbookie.cli", "cluster", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.wait(_WAIT_S)


async def _fill(uri: str) -> None:
    """Something to see: ledgers, open and closed, and a log."""
    async with bkclient.connect(uri) as bk:
        for _ in range(3):
            async with await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2) as writer:
                for _ in range(200):
                    await writer.submit(b"x" * 500)
        logs = Logs(bk)
        await logs.create("orders")
        async with logs.writer("orders") as log:
            for number in range(100):
                log.publish_nowait(b"order %d" % number)
            await log.flush()
            await bk.create_ledger()  # which stays open


def look_at_cluster(look: Look) -> None:
    """The page of a running cluster, with a bookie that was crashed by keyboard."""
    with _cluster() as facts:
        with ThreadPoolExecutor() as pool:  # the browser has an event loop in this thread
            pool.submit(asyncio.run, _fill(facts["metadata"])).result()
        for size in _SIZES:
            for scheme in _SCHEMES:
                with look.window(facts["page"], size, scheme) as page:
                    page.goto(facts["page"])
                    page.wait_for_selector("#link.live")
                    page.wait_for_selector("article.running >> nth=2")
                    if size == "desktop" and scheme == "light":
                        if not _press_until(page, "[aria-label='Crash bookie-1']"):
                            page.wrong("Tab does not come to a button that crashes a bookie")
                        page.keyboard.press("Enter")
                    page.wait_for_selector("article.crashed")
                    look.check_width(page)
                    look.take(page, f"cluster-{size}-{scheme}", whole=True)


# Reports ---------------------------------------------------------------------------------------------------------------


def _run(command: str, *args: str) -> None:
    """Run a command of ours, which may find violations."""
    path = Path(sys.executable).with_name(command)
    done = subprocess.run([path, *args], cwd=ROOT, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode > 1:
        raise SystemExit(f"{command} {' '.join(args)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def use_run_page(look: Look, base: str, name: str) -> None:
    """The page of a run on a phone: its chart in whole, its events to the side by keyboard, and names of any length."""
    with look.window(base, "phone", "light") as page:
        page.goto(f"{base}{name}.html")
        look.check_scrolled(page, "#chart")
        smallest = page.evaluate(
            "Math.min(...[...document.querySelectorAll('#chart text')].map(e => e.getBoundingClientRect().height))"
        )
        if smallest < _LETTERS_MIN:
            page.wrong(f"the words of the chart are {smallest:.0f} pixels high")
        if _press_until(page, "#scroll"):
            for _ in range(10):
                page.keyboard.press("ArrowRight")
            try:
                page.wait_for_function("document.querySelector('#frame').scrollLeft > 0", timeout=5_000)
            except Exception as error:  # noqa: BLE001  playwright's own, which is not imported here
                page.wrong(f"the arrow keys do not show what the events say: {error}")
            look.take(page, f"{name}-phone-events")
        else:
            page.wrong("Tab does not come to the events")
        page.evaluate(
            "document.querySelectorAll('h1, dd, #verdict, #violations button, #detail td, #legend span').forEach("
            "e => e.append('x'.repeat(300)))"
        )
        look.check_width(page)
        look.take(page, f"{name}-phone-long-names", whole=True)


def look_at_reports(look: Look, folder: Path) -> None:
    """Pages of runs, lawful and not, and the report over a few of them."""
    histories = folder / "histories"
    runs = {"chaos-lawful": (), "chaos-violated": ("--mutant", "recovery-reads-do-not-fence")}
    for name, options in runs.items():
        page = ("--html", str(folder / f"{name}.html"), "--record", str(histories))
        _run("bk-chaos", "run", "lost-fence", "--seed", "7", *options, *page)
    names = [*runs]
    if shutil.which("java"):
        _run("bk-verify", "report", str(histories), "--to", str(folder / "verify-report.html"))
        names.append("verify-report")
    else:
        sys.stdout.write("without Java there is no bk-verify report to look at\n")
    with served(folder) as base:
        for size in _SIZES:
            for scheme in _SCHEMES:
                with look.window(base, size, scheme) as page:
                    for name in names:
                        page.goto(f"{base}{name}.html")
                        look.check_width(page)
                        look.take(page, f"{name}-{size}-{scheme}")
        for name in runs:
            use_run_page(look, base, name)


def main() -> int:
    """Build the site, look at everything; 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--no-build", action="store_true", help="look at the site that was built before")
    parser.add_argument("--only", choices=("site", "cluster", "reports"), help="look at nothing else")
    chosen = parser.parse_args()
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415  of the extra dev
    except ImportError:
        sys.stdout.write('screenshots need playwright: pip install "bkclient[dev]"\n')
        return 2
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.stdout.write("screenshots need a Chromium: apt-get install chromium\n")
        return 2
    with ExitStack() as stack:
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        stack.callback(browser.close)
        look = Look(browser)
        if chosen.only in {None, "cluster"}:
            look_at_cluster(look)
        if chosen.only in {None, "reports"}:
            folder = FOLDER / "pages"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            look_at_reports(look, folder)
        if chosen.only in {None, "site"}:
            if not chosen.no_build:
                subprocess.run([sys.executable, "-m", "docs.website.build"], cwd=ROOT, check=True)
            look_at_site(look)
    sys.stdout.writelines(f"{problem}\n" for problem in look.problems)
    sys.stdout.write(f"{look.pictures} pictures in {FOLDER}, {len(look.problems)} problems\n")
    return bool(look.problems)


if __name__ == "__main__":
    sys.exit(main())

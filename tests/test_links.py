"""No page points to what is not there: every link between pages, and every anchor, leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_tidy import ROOT, tracked_files

PAGES = sorted(path for path in tracked_files() if path.suffix == ".md")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")


def links(text: str) -> list[str]:
    """The targets of the links of a page that are on this machine; what is in code is none."""
    prose = _CODE.sub("``", _FENCE.sub("", text))
    return [target for target in _LINK.findall(prose) if not _ELSEWHERE.match(target)]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    found: set[str] = set()
    for title in re.findall(r"^#{1,6} +(.+?) *$", _FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def dead(page: Path, text: str) -> list[str]:
    """The links of ``text``, which stands at ``page``, that lead nowhere."""
    found = []
    for target in links(text):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        content = text if path == page else path.read_text(encoding="utf-8") if path.is_file() else ""
        if not path.exists() or (anchor and anchor not in anchors(content)):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert dead(page, page.read_text(encoding="utf-8")) == []


def test_the_list_of_pages_has_them_all() -> None:
    start = ROOT / "docs" / "README.md"
    listed = {(start.parent / target).resolve() for target in links(start.read_text(encoding="utf-8"))}
    assert {page for page in PAGES if page.is_relative_to(start.parent) and page != start} <= listed


def test_every_page_that_code_mentions_exists() -> None:
    mention = re.compile(r"\bdocs/[\w/-]+\.md\b")
    absent = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked_files()
        if path.suffix in {".py", ".toml"} or path.name == "Makefile"
        for name in mention.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / name).is_file()
    }
    assert absent == set()


@pytest.mark.parametrize(
    "link", ["[x](absent.md)", "[x](decisions.md#absent)", "[x](#absent)", "[`x`](../absent.md)", "[x [y]](absent)"]
)
def test_a_link_that_leads_nowhere_is_noticed(link: str) -> None:
    page = ROOT / "docs" / "inside" / "architecture.md"
    assert len(dead(page, f"# A title\n\n{link}")) == 1


@pytest.mark.parametrize(
    "link",
    [
        "[x](decisions.md)",
        "[x](../README.md#inside)",
        "[x](#a-title-of-code-1)",
        "`[x](absent.md)`",
        "[x](https://a.b/c)",
    ],
)
def test_a_link_that_leads_somewhere_is_not(link: str) -> None:
    page = ROOT / "docs" / "inside" / "architecture.md"
    assert dead(page, f"# A title of `code`\n\n# A title, of code\n\n{link}\n\n```\n[x](absent.md)\n```\n") == []

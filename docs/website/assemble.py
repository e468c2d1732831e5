"""Puts the sources of the site together: the pages of ``docs/`` as they are, and beside them what is made from the code.

Pages in ``docs/`` are written for a repository page too, so their links may lead to files that the site does not have. A link
to a page outside ``docs/`` that the site takes along (:data:`TAKEN_ALONG`) is turned to its copy; any other loses its target and
keeps its words.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from docs.website.api_pages import api_pages
from docs.website.catalogues import catalogues
from docs.website.pictures import PICTURES

__all__ = ["ROOT", "TAKEN_ALONG", "assemble", "with_links_inside"]

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DOCS: Final = ROOT / "docs"
#: Pages of the repository outside ``docs/``, and where the site has them.
TAKEN_ALONG: Final[Mapping[str, str]] = {
    "benchmarks/README.md": "inside/benchmarks.md",
    "tests/README.md": "inside/tests.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK: Final = re.compile(r"(?P<picture>!?)\[(?P<words>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]*:|#")
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1$", re.MULTILINE | re.DOTALL)
_PICTURE: Final = re.compile(r"!\[(?P<words>[^\]]*)\]\((?:\.\./)*pictures/(?P<name>[\w-]+)\.svg\)")


def assemble(folder: Path) -> None:
    """Write the sources of the whole site to ``folder``, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted(DOCS.rglob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        if name != "docs/README.md":  # the list of pages for readers of the repository; index.md is the site's
            _write(folder / path.relative_to(DOCS), with_links_inside(path.read_text(encoding="utf-8"), name))
    for path in sorted((DOCS / "inside").rglob("*.svg")):
        (folder / path.relative_to(DOCS)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / path.relative_to(DOCS))
    for name, place in TAKEN_ALONG.items():
        _write(folder / place, with_links_inside((ROOT / name).read_text(encoding="utf-8"), name))
    for name, text in {**api_pages(), **catalogues()}.items():
        _write(folder / name, text)
    shutil.copytree(DOCS / "website" / "static", folder / "static")


def with_links_inside(text: str, name: str) -> str:
    """The text of the page ``name`` (a path in the repository), with links that lead somewhere in the site.

    Pictures of :mod:`docs.website.pictures` become a part of the page, so that they follow its colours.
    """

    def turned(found: re.Match[str]) -> str:
        target, _, anchor = found["target"].partition("#")
        if found["picture"] or _ELSEWHERE.match(found["target"]):
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(name), target))  # noqa: PTH118, PTH120  paths of the repository
        place = _place(path)
        if place is None:
            return found["words"]
        here = os.path.dirname(_place(name) or "")  # noqa: PTH120
        return f"[{found['words']}]({os.path.relpath(place, here or '.')}{'#' + anchor if anchor else ''})"

    def drawn(found: re.Match[str]) -> str:
        svg = PICTURES[found["name"]]()
        return f'```{{raw}} html\n<figure class="picture">{svg}</figure>\n```'

    parts, last = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_PICTURE.sub(drawn, _LINK.sub(turned, text[last : fence.start()])), fence[0]]
        last = fence.end()
    return "".join([*parts, _PICTURE.sub(drawn, _LINK.sub(turned, text[last:]))])


def _place(path: str) -> str | None:
    """Where the site has a page of the repository; None if it has not."""
    if path in TAKEN_ALONG:
        return TAKEN_ALONG[path]
    if path in {"README.md", "docs/README.md", "docs"}:
        return "index.md"
    if path.startswith("docs/") and path.endswith(".md"):
        return path.removeprefix("docs/")
    return None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")

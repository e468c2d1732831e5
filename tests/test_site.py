"""The documentation site: what is made from code is complete, links stay inside, and Sphinx builds it without a warning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bkclient.errors import LedgerFenced
from docs.website.api_pages import api_pages, public_modules
from docs.website.assemble import ROOT, assemble, with_links_inside
from docs.website.build import build, run_sphinx
from docs.website.catalogues import catalogues
from docs.website.pictures import FOLDER, PICTURES
from scenarios.clauses import CLAUSES, INVARIANTS
from scenarios.library import SCENARIOS
from scenarios.mutants import MUTANTS
from scenarios.plan.faults import FAULTS
from scenarios.plan.library import library_names
from scenarios.plan.operations import OPERATIONS

DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_its_program_draws(name: str) -> None:
    drawn = PICTURES[name]()
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == f"{drawn}\n", "python -m docs.website.pictures"
    assert "<title" in drawn


def test_every_picture_is_on_a_page() -> None:
    shown = re.findall(r"\(\.\./pictures/([\w-]+)\.svg\)", (DOCS / "start" / "concepts.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(PICTURES) == sorted(path.stem for path in FOLDER.glob("*.svg"))


def test_catalogues_have_everything_that_the_code_has() -> None:
    made = catalogues()
    for page, names in {
        "scenarios": [*SCENARIOS, *library_names()],
        "faults": [*FAULTS, *OPERATIONS],
        "clauses": [*INVARIANTS, *CLAUSES],
        "mutants": [*MUTANTS],
    }.items():
        text = made[f"catalogue/{page}.md"]
        assert [
            name for name in names if not re.search(rf"(`|\*\*|^##+ ){re.escape(name)}(`|\*\*|$)", text, re.MULTILINE)
        ] == []


def test_every_public_name_is_documented_once_and_linked_elsewhere() -> None:
    pages = api_pages()
    assert {f"api/{module}.rst" for module, _ in public_modules()} == set(pages) - {"api/index.rst"}
    for module, names in public_modules():
        page = pages[f"api/{module}.rst"]
        assert [name for name in names if name not in page] == []
    everything = "\n".join(pages.values())
    directive = rf"^\.\. autoexception:: [\w.]+\.{LedgerFenced.__name__}$"
    assert len(re.findall(directive, everything, re.MULTILINE)) == 1


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        ("[a](decisions.md#x)", "[a](decisions.md#x)"),
        ("[a](../../tests/README.md)", "[a](tests.md)"),
        ("[a](../../bkclient/errors.py) [b](../using/log.md)", "a [b](../using/log.md)"),
        ("[a](../README.md)", "[a](../index.md)"),
        ("[a](https://a.b/c) [b](#d)", "[a](https://a.b/c) [b](#d)"),
        ("```text\n[a](../../bkclient)\n```", "```text\n[a](../../bkclient)\n```"),
    ],
)
def test_links_lead_to_what_the_site_has(text: str, turned: str) -> None:
    assert with_links_inside(text, "docs/inside/architecture.md") == turned


def test_the_site_has_every_page_of_docs(tmp_path: Path) -> None:
    assemble(tmp_path)
    pages = {path.relative_to(DOCS) for path in DOCS.rglob("*.md")} - {Path("README.md")}
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*.md")} > pages
    assert '<svg xmlns="http://www.w3.org/2000/svg" class="bkp"' in (tmp_path / "start" / "concepts.md").read_text()


_FETCHED = re.compile(
    r"""<(?:script|img|iframe|link|source)\b[^>]*?(?:src|href)=["'](?:https?:)?//|@import|url\(["']?https?:"""
)


@pytest.mark.deep
@pytest.mark.timeout(300)
def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason='needs the extra "docs"')
    target = tmp_path / "site"
    assert build(target, tmp_path / "sources") == 0
    built = [path for path in target.rglob("*") if path.suffix in {".html", ".css"}]
    assert len(built) > 80
    assert [path.name for path in built if _FETCHED.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.deep
@pytest.mark.parametrize("text", ["[a](absent.md)", "[a](#absent)", "\n\n```{absent}\n```"])
def test_a_page_with_a_mistake_is_not_built(text: str, tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason='needs the extra "docs"')
    (tmp_path / "sources" / "static").mkdir(parents=True)
    (tmp_path / "sources" / "index.md").write_text("# A title\n\nWords.\n")
    assert run_sphinx(tmp_path / "sources", tmp_path / "good") == 0
    (tmp_path / "sources" / "index.md").write_text(f"# A title\n\nWords: {text}\n")
    assert run_sphinx(tmp_path / "sources", tmp_path / "bad") != 0


def test_every_page_has_a_place_in_the_navigation_and_only_one(tmp_path: Path) -> None:
    assemble(tmp_path)
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    entries = re.findall(r"^```\{toctree\}\n(.*?)^```", index, re.MULTILINE | re.DOTALL)
    named = re.findall(r"^(?:.*<)?([a-z][\w./-]+)>?$", "\n".join(entries), re.MULTILINE)
    pages = {path.relative_to(tmp_path).with_suffix("").as_posix() for path in tmp_path.rglob("*.md")} - {"index"}
    assert sorted(named) == sorted([*pages, "api/index"]), "docs/index.md has the navigation"

"""docs/reference/errors.md lists every class of error as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkclient import errors
from bkclient.errors import BookKeeperError

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
CLASSES = [
    cls
    for cls in (getattr(errors, name) for name in errors.__all__)
    if isinstance(cls, type) and issubclass(cls, BookKeeperError) and cls is not BookKeeperError
]


def rows() -> dict[str, list[str]]:
    lines = (line for line in PAGE.splitlines() if line.startswith("| -"))
    return {(cells := [cell.strip() for cell in line.strip("|").split("|")])[1]: cells for line in lines}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_is_described_as_it_is_declared(cls: type[BookKeeperError]) -> None:
    code, _, javas_name, meaning, again, advice = rows()[f"`{cls.__name__}`"]
    assert int(code) == cls.code
    assert javas_name.endswith("Exception")
    assert cls.__doc__ is not None
    assert meaning == cls.__doc__.splitlines()[0]
    assert again == ("retry" if cls.retriable else "fatal" if cls.is_fatal else "")
    assert advice == cls.advice


def test_no_error_is_described_that_does_not_exist() -> None:
    assert sorted(rows()) == sorted(f"`{cls.__name__}`" for cls in CLASSES)

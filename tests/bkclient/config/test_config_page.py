"""docs/using/configuration.md says of every setting and key what the code says of it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from bkclient import ClientConfig
from bkclient.config.group import groups_of
from bkclient.config.keys import BASES, IGNORED_KEYS, REFUSED_KEYS
from tests.bkclient.config.config_page import describe

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "using" / "configuration.md").read_text(encoding="utf-8")
FIELDS = [(name, field) for name, group in groups_of(ClientConfig).items() for field in dataclasses.fields(group)]


def section(title: str) -> str:
    return PAGE.partition(f"\n### {title}\n")[2].partition("\n#")[0]


def rows() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in PAGE.partition("\n## BookKeeper's keys")[0].splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert cells[0] not in found, f"{cells[0]} is listed twice"
            found[cells[0]] = cells
    return found


@pytest.mark.parametrize(("group", "field"), FIELDS, ids=[f"{group}.{field.name}" for group, field in FIELDS])
def test_a_setting_is_described_as_it_is_declared(group: str, field: dataclasses.Field[object]) -> None:
    *declared, meaning = rows()[f"`{group}.{field.name}`"]
    assert tuple(declared) == describe(group, field)
    assert meaning.endswith(".")


def test_no_setting_is_described_that_does_not_exist() -> None:
    assert list(rows()) == [f"`{group}.{field.name}`" for group, field in FIELDS]


def test_a_group_has_a_section_that_names_its_class() -> None:
    text = PAGE.partition("\n## BookKeeper's keys")[0]
    titled = re.findall(r"^## (.+?): `(\w+)`, `(\w+)`$", text, re.MULTILINE)
    expected = [(name, group.__name__) for name, group in groups_of(ClientConfig).items()]
    assert [(name, of_class) for _, name, of_class in titled] == expected


def test_every_ignored_key_is_listed_with_its_reason() -> None:
    listed: dict[str, str] = {}
    for line in section("Ignored").splitlines():
        if line.startswith("| `"):
            keys, reason = line.strip("| ").split(" | ")
            listed |= dict.fromkeys(re.findall(r"`([^`]+)`", keys), reason)
    assert listed == IGNORED_KEYS


def test_every_refused_key_is_listed_with_its_reason_and_what_is_accepted() -> None:
    listed = {}
    for line in section("Refused").splitlines():
        if line.startswith("| `"):
            key, reason, accepted = line.strip("| ").split(" | ")
            listed[key.strip("`")] = (reason, tuple(re.findall(r"`([^`]+)`", accepted)))
    assert listed == REFUSED_KEYS


def test_keys_that_stand_for_others_are_explained() -> None:
    for base, dependants in BASES.items():
        assert f"`{base}` for `{dependants[0]}` and" in PAGE.replace("\n", " ")

"""The page on plans lists every operation, fault and setting of a cluster as the code has them."""

from __future__ import annotations

import re
import typing
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from scenarios.plan import parse_plan, print_plan
from scenarios.plan.faults import FAULTS
from scenarios.plan.operations import OPERATIONS, Until
from scenarios.plan.schedule import SCHEDULES
from scenarios.plan.words import key_of, print_value

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "plans.md").read_text(encoding="utf-8")


def signature(verb: str, cls: type) -> str:
    """How it is written: required words in capitals, the others with their defaults."""
    words = [verb]
    hints = typing.get_type_hints(cls)
    for field in fields(cls):
        if field.name == "late":  # in lines of their own
            continue
        key, is_duration = key_of(field.name, hints[field.name])
        if field.default is MISSING:
            words.append(key.upper())
        elif field.default is False:
            words.append(f"[{key}]")
        elif field.default in {None, ""} or field.default == ():
            words.append(f"[{key}=...]")
        else:
            words.append(f"[{key}={print_value(field.default, is_duration=is_duration)}]")
    return " ".join(words)


def table(known: dict[str, type]) -> str:
    lines = []
    for verb, cls in known.items():
        shown = "until TRIGGER" if cls is Until else signature(verb, cls)
        meaning = re.sub(r":class:`~?[\w.]*?(\w+)`|``(.*?)``", r"`\1\2`", " ".join((cls.__doc__ or "").split()))
        meaning = re.sub(r"`(\w+)_s`", r"`\1`", meaning)
        lasting = [" lasts" if getattr(cls, "is_lasting", False) else ""] if known is FAULTS else []
        lines.append(" | ".join([f"| `{shown}`", *(text.strip() or "at once" for text in lasting), f"{meaning} |"]))
    return "\n".join(lines)


@pytest.mark.parametrize("known", [OPERATIONS, FAULTS], ids=["operations", "faults"])
def test_the_page_has_the_table_that_the_code_makes(known: dict[str, type]) -> None:
    assert table(known) in PAGE, f"the page should say:\n{table(known)}"


def test_the_page_has_the_schedules_that_the_code_has() -> None:
    expected = table(SCHEDULES).replace("| `", "| `schedule ")
    assert expected in PAGE, f"the page should say:\n{expected}"
    named = re.findall(r"^\| `schedule (\w+)[^|]*` \| (?!what is late)", PAGE, re.MULTILINE)
    assert named == list(SCHEDULES)


def test_the_plan_on_the_page_is_one_in_its_canonical_form_and_so_is_the_one_with_its_schedule() -> None:
    shown, schedule = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert print_plan(parse_plan(shown)) == shown
    head, rest = shown.split("\n\ncluster ", 1)
    late = f"{head}\n{schedule}\ncluster {rest}"
    assert print_plan(parse_plan(late)) == late

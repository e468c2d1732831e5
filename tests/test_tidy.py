"""The rules of this repository that no linter knows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE_LINES_MAX = 500
#: Forbidden text, and what to do about it. Split, so that this file does not contain what it looks for.
FORBIDDEN = {
    "TO" + "DO": "finish it, or write down in docs/inside/decisions.md why not",
    "FIX" + "ME": "fix it",
    "py" + "pi.org": "packages are named, registries are not",
    "python" + "hosted": "packages are named, registries are not",
    "maven" + ".org": "packages are named, registries are not",
    "/ro" + "ot/": "no path of one machine belongs here",
    "/ho" + "me/": "no path of one machine belongs here",
}
#: Modules that bring clocks and chance of their own; only command lines, doors to real sockets and what measures real time may.
CLOCKS_AND_CHANCE = re.compile(
    r"^\s*(import time|from time import|import secrets)\b|\buuid[14]\(|\burandom\(", re.MULTILINE
)
MAY_MEASURE_TIME = (
    *(
        "cli.py",
        "bkclient/cli/",
        "bkclient/_client/connect.py",
        "scenarios/runner.py",
        "scenarios/testing/entropy.py",
        "scenarios/sweep.py",
        "scenarios/sweep_state.py",
        "scenarios/units.py",
        "scenarios/hunting.py",
        "scenarios/exploration.py",
        "scenarios/shrinking/shrinker.py",
        "scenarios/exhausting.py",
        "simbookie/crashes/sweep.py",
    ),
    *("spark_analysis/", "simbookie/serving.py", "simbookie/zookeeper/embedded.py"),
    "scenarios/processes/",  # processes take real time
    "simbookie/tcp/",  # what sockets and strangers do takes real time
)
GLOBAL_RANDOM = re.compile(r"\brandom\.(random|randint|choice|choices|shuffle|sample|uniform|seed|randbytes)\(")


def tracked_files() -> list[Path]:
    """Everything under version control; all files of the packages where there is no git."""
    try:
        listing = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        packages = ("bkclient", "simbookie", "scenarios", "spark_analysis", "tests", "docs")
        return [path for package in packages for path in (ROOT / package).rglob("*") if path.suffix in (".py", ".md")]
    return [ROOT / name for name in listing.splitlines() if (ROOT / name).is_file()]


def sources() -> list[Path]:
    """Hand-written modules of the four packages."""
    packages = ("bkclient", "simbookie", "scenarios", "spark_analysis")
    paths = (path for path in tracked_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in packages)
    return [path for path in paths if not path.name.endswith("_pb2.py")]


@pytest.mark.parametrize("text", FORBIDDEN)
def test_no_file_contains(text: str) -> None:
    offenders = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if text in path.read_text(encoding="utf-8", errors="ignore")
    ]
    assert not offenders, f"{text!r} in {offenders}: {FORBIDDEN[text]}"


def test_no_source_file_is_too_long_to_have_one_concern() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    assert {name: lines for name, lines in lengths.items() if lines > SOURCE_LINES_MAX} == {}


def test_every_source_file_opens_with_its_model() -> None:
    without = [str(path.relative_to(ROOT)) for path in sources() if not path.read_text().startswith('"""')]
    assert without == []


def test_time_and_chance_come_from_outside() -> None:
    offenders = []
    for path in sources():
        name, text = str(path.relative_to(ROOT)), path.read_text()
        is_exempt = any(name.endswith(end) or name.startswith(end) for end in MAY_MEASURE_TIME)
        if GLOBAL_RANDOM.search(text) or (CLOCKS_AND_CHANCE.search(text) and not is_exempt):
            offenders.append(name)
    assert offenders == []


def test_the_protocol_is_sans_io() -> None:
    forbidden = re.compile(
        r"^\s*(import|from) (asyncio|anyio|socket|time|random|logging|threading)\b|\bawait\b(?!`)", re.MULTILINE
    )
    offenders = [
        str(path.relative_to(ROOT))
        for path in sources()
        if "bkclient/protocol/" in str(path) and path.name != "__init__.py" and forbidden.search(path.read_text())
    ]
    assert offenders == []


#: Subjects that hide who acts, and phrases that only a dictionary knows: the words here are those of the field.
MANNERED = re.compile(r"\b(whoever|whom|for want of|as it seems|(?:is|are) the business of)\b", re.IGNORECASE)


def test_code_and_pages_say_who_acts() -> None:
    offenders = {
        f"{path.relative_to(ROOT)}: {match}"
        for path in tracked_files()
        if path.suffix in (".py", ".pyx", ".md", ".scn", ".toml") and path != Path(__file__)
        for match in MANNERED.findall(path.read_text(encoding="utf-8"))
    }
    assert offenders == set()

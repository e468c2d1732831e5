"""What is published: wheel and source archive, and the versions that every installation is tested with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import bkclient
from tests.tools.pins import CONSTRAINTS, JAVA_REQUIREMENTS, REQUIREMENTS, build_requirements, extras, pins_in

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"bkclient", "scenarios", "simbookie", "spark_analysis"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True, timeout=100)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_holds_the_four_packages_and_nothing_else_on_top(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel.namelist())


def test_the_wheel_holds_every_plan(wheel: zipfile.ZipFile) -> None:
    plans = {f"scenarios/plans/{path.name}" for path in (ROOT / "scenarios" / "plans").glob("*.scn")}
    assert len(plans) > 70
    assert plans <= set(wheel.namelist())


def test_the_metadata_says_what_an_index_shows(metadata: Message) -> None:
    assert metadata["Name"] == "bkclient"
    assert metadata["Version"] == bkclient.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Author"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Project-URL"]
    classifiers = metadata.get_all("Classifier") or []
    assert {"Framework :: AsyncIO", "Typing :: Typed", "Programming Language :: Python :: 3.14"} <= set(classifiers)


def test_the_page_for_an_index_has_no_link_that_is_dead_there(metadata: Message) -> None:
    page = metadata.get_payload()
    assert isinstance(page, str)
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert links, "the page has links to elsewhere, at least to Apache BookKeeper"
    assert [link for link in links if not link.startswith("https://")] == []
    assert f"## {bkclient.__version__}" in page, "the page ends with the changelog"


def test_what_is_installed_by_default_is_under_a_permissive_licence(metadata: Message) -> None:
    required = [line for line in metadata.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert {Requirement(line).name for line in required} == {"anyio", "google-crc32c", "msgpack", "protobuf"}


def test_the_source_archive_holds_everything_under_version_control(built: Path) -> None:
    try:
        listing = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this tree is not under version control")
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = {name for name in listing.splitlines() if (ROOT / name).is_file()}
    assert tracked - names == set()


def test_the_versions_with_hashes_are_those_without() -> None:
    assert pins_in(REQUIREMENTS) | pins_in(JAVA_REQUIREMENTS) == pins_in(CONSTRAINTS)


@pytest.mark.parametrize("path", [REQUIREMENTS, JAVA_REQUIREMENTS], ids=lambda path: path.name)
def test_every_pinned_version_has_a_hash(path: Path) -> None:
    lines = [line.rstrip(" \\") for line in path.read_text().splitlines() if not line.startswith("#")]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if not line.startswith("    "):
            assert following.startswith("    --hash=sha256:"), line


def test_every_requirement_of_the_project_is_pinned_within_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(line for lines in extras().values() for line in lines), *build_requirements()]
    pins = pins_in(CONSTRAINTS)
    for requirement in map(Requirement, wanted):
        if requirement.name != "bkclient":
            version = pins[re.sub(r"[-_.]+", "-", requirement.name).lower()]
            assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}"


#: Extras for those who work on the repository.
OWN_EXTRAS = {"dev", "dev-test", "docs", "examples", "mutation"}


def test_every_extra_is_explained() -> None:
    page = (ROOT / "docs" / "reference" / "status.md").read_text(encoding="utf-8")
    table = page.partition("## Which extra is needed for what")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    explained = {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)}
    assert explained == {*extras()} - OWN_EXTRAS


def test_the_changelog_tells_of_this_version() -> None:
    assert re.search(rf"^## {re.escape(bkclient.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", ["bk", "bk-sim", "bk-chaos", "bk-verify"])
def test_every_command_tells_the_version(command: str) -> None:
    program = Path(sys.executable).parent / command
    done = subprocess.run([program, "--version"], check=True, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"{command} {bkclient.__version__}\n", "")


#: A program that has a simulated world do what programs have it do, logs and elections aside.
PROGRAM = """
import bkclient

async def test_one(bk_world):
    async with bkclient.connect(bk_world.uri) as bk:
        async with await bk.create_ledger() as writer:
            await writer.append(b"one")
        async with await bk.open_ledger(writer.ledger_id) as reader:
            assert [entry.payload async for entry in reader.read_range(0, 0)] == [b"one"]
"""


@pytest.mark.deep
def test_what_is_installed_is_not_taken_for_the_program_under_test(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """A simulated run warns of real clocks and chance in the program; in a checkout, this project is not where packages are."""
    installed = tmp_path / "site-packages"
    wheel.extractall(installed)
    (tmp_path / "test_one.py").write_text(PROGRAM)

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_one.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert (ended.returncode, "warning" in ended.stdout) == (0, False), ended.stdout
    assert "10 passed" in ended.stdout

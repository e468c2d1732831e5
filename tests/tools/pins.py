"""Writes the pinned versions, and their hashes, of everything an installation for development has.

    python -m tests.tools.pins            # keeps the versions of constraints.txt where pyproject.toml allows them
    python -m tests.tools.pins --upgrade  # takes the newest versions that pyproject.toml allows

Two kinds of files come out, with the same versions. ``constraints.txt`` has versions only, for ``pip install -c``, which in
many versions of pip cannot read hashes. ``.ci/requirements.txt``, and ``.ci/requirements-java.txt`` for machines without Java,
have hashes, for ``pip install --require-hashes --no-deps -r``. None of them names a registry.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CONSTRAINTS: Final = ROOT / "constraints.txt"
REQUIREMENTS: Final = ROOT / ".ci" / "requirements.txt"
JAVA_REQUIREMENTS: Final = ROOT / ".ci" / "requirements-java.txt"

_CONSTRAINTS_HEAD: Final = (
    '# Versions every installation is tested with: pip install -c constraints.txt -e ".[dev]"  (written by make pins)\n'
)
_HASHED_HEAD: Final = "# The versions of constraints.txt with their hashes (written by make pins)\n"
#: What an editable installation by the build back end needs besides what pyproject.toml names.
_FOR_EDITABLE: Final = ("editables",)


def extras() -> dict[str, list[str]]:
    """The extras of pyproject.toml with their requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, list[str]] = project["optional-dependencies"]
    return found


def build_requirements() -> list[str]:
    """What building needs: the pinned requirements of pyproject.toml, and what pip asks for besides."""
    requires: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return [*requires, *_FOR_EDITABLE]


def pins_in(path: Path) -> dict[str, str]:
    """Package name to version, of the lines ``name==version`` of a file; what stands behind the version is left out."""
    lines = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in lines}


def _compiled(requirements: list[str], *, upgrade: bool) -> str:
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "wanted.in"
        wanted.write_text("\n".join(requirements) + "\n")
        command = ["uv", "pip", "compile", str(wanted), "--universal", "--python-version", "3.11", "--generate-hashes"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
        if not upgrade:
            command += ["--constraint", str(CONSTRAINTS)]
        done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


def write(*, upgrade: bool) -> None:
    """Write all three files."""
    names = extras()
    wanted = [
        f"bkclient[{','.join(name for name in names if name != 'java')}] @ {ROOT.as_uri()}",
        *build_requirements(),
    ]
    # The project itself is not pinned, only what it needs.
    everything = re.sub(r"^bkclient @ [^\n]*\n", "", _compiled(wanted, upgrade=upgrade), flags=re.MULTILINE)
    java = _compiled(names["java"], upgrade=upgrade)
    REQUIREMENTS.write_text(_HASHED_HEAD + everything)
    JAVA_REQUIREMENTS.write_text(_HASHED_HEAD + java)
    pinned = sorted(re.findall(r"^[A-Za-z0-9._-]+==[^\\\n]+", everything + java, re.MULTILINE), key=str.lower)
    CONSTRAINTS.write_text(_CONSTRAINTS_HEAD + "\n".join(line.strip() for line in pinned) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the pinned versions of everything development needs.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    write(upgrade=parser.parse_args().upgrade)

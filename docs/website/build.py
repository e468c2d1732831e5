"""Builds the documentation site into ``build/site``.

    python -m docs.website.build [FOLDER]

Sphinx runs with warnings as errors, so a link that leads nowhere, a page that the navigation lacks or a docstring that cannot be
read ends it with 1. Nothing is downloaded, neither now nor by the pages: fonts, styles and scripts are in the folder.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from docs.website.assemble import ROOT, assemble

__all__ = ["build", "main", "run_sphinx"]

_FOLDER: Final = ROOT / "build" / "site"


def build(target: Path, sources: Path) -> int:
    """Build the site into ``target``, by way of ``sources``; 0 if there was no warning."""
    assemble(sources)
    return run_sphinx(sources, target)


def run_sphinx(sources: Path, target: Path) -> int:
    """Have Sphinx build ``sources`` as they are; 0 if there was no warning."""
    configuration = ROOT / "docs" / "website"
    options = ["-W", "--keep-going", "-q", "-E", "-b", "html", "-c", str(configuration)]
    command = [sys.executable, "-m", "sphinx", *options, str(sources), str(target)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603  no word of it is a stranger's


def main() -> int:
    """The command."""
    target = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else _FOLDER
    code = build(target, ROOT / "build" / "site-sources")
    if code == 0:
        sys.stdout.write(f"The site is in {target}; open {target / 'index.html'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

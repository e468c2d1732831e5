"""Builds the compiled core: into a wheel, as a hook of hatchling, or beside its sources in a checkout.

    make core                                                        # beside its sources; make core-clean removes it
    HATCH_BUILD_HOOK_ENABLE_CUSTOM=true python -m pip wheel .        # a wheel for this platform and this Python

The hook is off unless that variable is set, and without it nothing here is imported: an ordinary wheel is one for every platform
and needs no compiler.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["CompiledCore", "build", "remove"]

#: The path of this package, in the repository and in a wheel.
PACKAGE: Final = "bkclient/_cython"
#: What building takes besides a C compiler.
REQUIREMENTS: Final = ["Cython>=3.1,<4", "setuptools>=75"]
#: Given whatever the environment says: an empty ``CFLAGS`` leaves a compiler without optimisation.
OPTIMISED: Final = ["-O2", "-g0"]
#: For memory errors to end the program that makes them (``make core-sanitized``).
SANITIZED: Final = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-fno-omit-frame-pointer",
    "-g",
    "-O1",
]


def build(root: Path, target: Path, *, flags: Sequence[str] = OPTIMISED) -> list[Path]:
    """Compile the modules of the core beneath ``root``, the folder of the project, into the folder ``target``."""
    from Cython.Build import cythonize  # noqa: PLC0415 - nothing but building needs them
    from setuptools import Distribution, Extension  # noqa: PLC0415

    # By its path: what builds need not be able to import the package.
    built_from = runpy.run_path(str(root / PACKAGE / "__init__.py"))["sources_digest"]()
    extensions = [
        Extension(
            f"{PACKAGE.replace('/', '.')}.{source.stem}",
            [str(source.relative_to(root))],
            include_dirs=[str(root / PACKAGE)],
            define_macros=[("BK_BUILT_FROM", f'"{built_from}"')],
            extra_compile_args=list(flags),
            extra_link_args=list(flags),
        )
        for source in sorted((root / PACKAGE).glob("*.pyx"))
    ]
    before = Path.cwd()
    os.chdir(root)  # paths of sources are found again in what is compiled, and shall not be of this machine
    try:
        with tempfile.TemporaryDirectory() as folder:
            modules = cythonize(  # type: ignore[no-untyped-call]
                extensions, build_dir=folder, include_path=["."], language_level=3, quiet=True
            )
            command = Distribution({"ext_modules": modules}).get_command_obj("build_ext")
            command.build_lib, command.build_temp = f"{folder}/lib", f"{folder}/temp"
            command.parallel = os.cpu_count()
            command.ensure_finalized()
            command.run()
            target.mkdir(parents=True, exist_ok=True)
            return [Path(shutil.copy2(output, target)) for output in command.get_outputs()]
    finally:
        os.chdir(before)


def remove(root: Path) -> None:
    """Remove what was built beside the sources."""
    for pattern in ("*.so", "*.pyd"):
        for module in (root / PACKAGE).glob(pattern):
            module.unlink()


class CompiledCore(BuildHookInterface[Any]):
    """Puts the compiled core into a wheel, which is then one for this platform and this Python."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """See :class:`BuildHookInterface`."""
        return REQUIREMENTS

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See :class:`BuildHookInterface`."""
        root = Path(self.root)
        if version == "editable":
            build(root, root / PACKAGE)
            return
        self._folder = tempfile.TemporaryDirectory()
        for module in build(root, Path(self._folder.name)):
            build_data["force_include"][str(module)] = f"{PACKAGE}/{module.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """See :class:`BuildHookInterface`."""
        if version != "editable":
            self._folder.cleanup()


if __name__ == "__main__":
    project = Path(__file__).resolve().parent.parent.parent
    remove(project)
    if "--remove" not in sys.argv:
        build(project, project / PACKAGE, flags=SANITIZED if "--sanitized" in sys.argv else OPTIMISED)

"""What executors on other machines need: this project, and to see the folders that a job works on."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile

from pyspark.sql import SparkSession

__all__ = ["NotSeenError", "check_seen", "project_archive", "ship_project"]

_PACKAGES: Final = ("bkclient", "simbookie", "scenarios", "spark_analysis")
#: What an interpreter makes for itself, and what it cannot load from an archive.
_LEFT_OUT: Final = (".pyc", ".so", ".pyd")


class NotSeenError(Exception):
    """Executors do not see a folder that the driver sees; the message says which, and what to do."""


def ship_project(spark: SparkSession) -> None:
    """Have executors use this project as it is installed here, whatever version of it they have, if any.

    What it needs has to be installed where they run: msgpack and pyarrow, and what ``bkclient`` needs to make runs again.
    Executors of a local master have the driver's interpreter, and are sent nothing.
    """
    if _is_local(spark):
        return
    scratch = Path(tempfile.mkdtemp(prefix="bk-verify-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    spark.sparkContext.addPyFile(str(project_archive(scratch)))


def project_archive(folder: Path) -> Path:
    """An archive in ``folder`` with all packages of this project, to be imported from as it is."""
    archive = folder / "bookkeeper.zip"
    with ZipFile(archive, "w", ZIP_DEFLATED) as packed:
        for root in map(_folder_of, _PACKAGES):
            for path in sorted(root.rglob("*")):
                if path.is_file() and path.suffix not in _LEFT_OUT:
                    packed.write(path, str(Path(root.name, path.relative_to(root))))
    return archive


def _folder_of(package: str) -> Path:
    """Where a package is installed, without importing it."""
    spec = find_spec(package)
    assert spec is not None, f"{package} is a part of this project"
    return Path(*spec.submodule_search_locations or ())


def check_seen(spark: SparkSession, paths: Sequence[Path]) -> None:
    """Raise :class:`NotSeenError` if an executor does not see one of ``paths``, or where it is going to be."""
    if _is_local(spark):
        return
    context = spark.sparkContext
    looked_for = [str(_there(path)) for path in paths]
    tasks = max(2, context.defaultParallelism)
    looks = context.parallelize(range(tasks), tasks).map(lambda _: [Path(path).exists() for path in looked_for])
    for path, *seen in zip(looked_for, *looks.collect(), strict=True):
        if not all(seen):
            raise NotSeenError(
                f"{path}: executors of {context.master} do not see it; put it where all of them and this program do, "
                "under the same path"
            )


def _is_local(spark: SparkSession) -> bool:
    return (spark.sparkContext.master or "").startswith("local")


def _there(path: Path) -> Path:
    """``path``, or the nearest folder above it that is there."""
    whole = path.absolute()
    return next((one for one in (whole, *whole.parents) if one.exists()), whole)

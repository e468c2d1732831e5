"""Names of the JVM that PySpark looks up for every column it makes, remembered.

To call a function, PySpark asks the JVM twice: what ``functions`` is, and whether it has a member of that name. The JVM
answers the first by looking for a class of that name in each package that was imported whole, and a class that is not there is
looked for in every one of Spark's jars. The invariants have thousands of columns, and a fifth of what planning them takes was
spent there.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

__all__ = ["remember_names"]

#: As PySpark asks for them; two of these are one class.
_CLASSES: Final = ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils")


class _Remembered:
    """A class of the JVM, each static member of which is looked up once."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._source, name)
        self.__dict__[name] = member
        return member


def remember_names(session: SparkSession) -> None:
    """Have the process of ``session`` look up each function once. Repeating it changes nothing."""
    jvm: Any = session._jvm  # noqa: SLF001  what is slow is PySpark's way to the JVM
    for name in _CLASSES:
        known = getattr(jvm, name)
        if not isinstance(known, _Remembered):
            setattr(jvm, name, _Remembered(known))

"""What PySpark asks the JVM again for every column it makes, remembered.

To call a function, PySpark asks the JVM twice: what ``functions`` is, and whether it has a member of that name. The JVM
answers the first by looking for a class of that name in each package that was imported whole, and a class that is not there is
looked for in every one of Spark's jars. Then it asks for the column ``ledger`` as often as somebody writes that name, and hands
over a list of columns by one call for each of them. The invariants have thousands of columns, and each call costs twice: when
Python forgets what came of it, the JVM is told.

So members are looked up once, columns that are a name or a literal are made once, and short lists are handed over whole. Columns
never change, so that one is as good as another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

__all__ = ["REMEMBERED_MAX", "remember_names"]

#: As PySpark asks for them: one class under two names, and two more.
_FUNCTIONS: Final = ("functions", "org.apache.spark.sql.functions")
_UTILS: Final = ("PythonUtils",)
_SQL_UTILS: Final = ("PythonSQLUtils",)

#: How many columns, literals and lists are remembered of each, those used last.
REMEMBERED_MAX: Final = 1024

#: Java makes a list of up to so many elements with one call.
_LIST_MAX: Final = 10


class _Remembered:
    """A class of the JVM, each static member of which is looked up once."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._source, name)
        self.__dict__[name] = member
        return member


class _RememberedFunctions(_Remembered):
    """The functions of Spark SQL, which make the same column of the same name, and of the same literal."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._of_name, self._of_literal = source.col, source.lit
        self.col = lru_cache(REMEMBERED_MAX)(self._column)
        self._literals = lru_cache(REMEMBERED_MAX, typed=True)(self._literal)

    def lit(self, value: Any) -> Any:
        """The column of a literal."""
        return self._literals(value) if isinstance(value, str | int) else self._of_literal(value)

    def _column(self, name: str) -> Any:
        return self._of_name(name)

    def _literal(self, value: str | int) -> Any:
        return self._of_literal(value)


class _RememberedUtils(_Remembered):
    """PySpark's helpers, which make the same sequence of the same columns."""

    def __init__(self, source: Any, java_list: Callable[..., Any]) -> None:
        super().__init__(source)
        self._java_list = java_list
        self._convert = source.toSeq
        self._sequences = lru_cache(REMEMBERED_MAX)(self._sequence_of)

    def toSeq(self, elements: Sequence[Any]) -> Any:  # noqa: N802  as the JVM calls it
        """Scala's ``Seq`` of ``elements``."""
        if not 0 < len(elements) <= _LIST_MAX or not all(isinstance(element, JavaObject) for element in elements):
            return self._convert(elements)
        return self._sequences(*map(_SameObject, elements))

    def _sequence_of(self, *elements: _SameObject) -> Any:
        return self._convert(self._java_list(*(element.java for element in elements)))


class _SameObject:
    """An object of the JVM, equal to itself only: comparing two as they are would ask the JVM."""

    __slots__ = ("java",)

    def __init__(self, java: JavaObject) -> None:
        self.java = java

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameObject) and self.java is other.java

    def __hash__(self) -> int:
        return id(self.java)


def remember_names(session: SparkSession) -> None:
    """Have the process of ``session`` ask for each function, name and literal once. Repeating it changes nothing."""
    jvm: Any = session._jvm  # noqa: SLF001  what is slow is PySpark's way to the JVM
    java_list = getattr(jvm.java.util.List, "of")  # noqa: B009  mypy knows no members
    for names, remembered in (
        (_FUNCTIONS, _RememberedFunctions),
        (_UTILS, lambda source: _RememberedUtils(source, java_list)),
        (_SQL_UTILS, _Remembered),
    ):
        known = getattr(jvm, names[0])
        if not isinstance(known, _Remembered):
            known = remembered(known)
            for name in names:
                setattr(jvm, name, known)

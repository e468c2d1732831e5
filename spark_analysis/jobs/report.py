"""What a report tells: the verdict of the formulas, what there is to say of LACs and faults, and the courses of some ledgers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.jobs.analyse import Analysis, analyse
from spark_analysis.jobs.courses import LacCourse, lac_courses
from spark_analysis.jobs.files import Rejected
from spark_analysis.jobs.lac import LacVerdict, analyze_lacs
from spark_analysis.jobs.verify import Verdict, verify

__all__ = ["COURSES_MAX", "Reported", "report"]

#: Ledgers of which the course is drawn: those that break an invariant first, then those with the least margin.
COURSES_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class Reported:
    """The parts of a report; ``folder`` is what it is about, as it was named."""

    folder: str
    verdict: Verdict
    lacs: LacVerdict
    courses: tuple[LacCourse, ...]
    faults: Analysis

    @property
    def is_clean(self) -> bool:
        """Whether no invariant is broken."""
        return self.verdict.is_clean and self.lacs.is_clean

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """The files that cannot be used."""
        return self.verdict.rejected

    @property
    def rejected_files(self) -> int:
        """How many there are."""
        return self.verdict.rejected_files

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.verdict.seconds + self.lacs.seconds + self.faults.seconds

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-verify report --json`` prints: what ``verify``, ``lac`` and ``analyse`` print, and the courses."""
        return {
            "folder": self.folder,
            "verdict": self.verdict.as_json(),
            "lac": self.lacs.as_json(),
            "courses": [
                {"history": course.history, "ledger": course.ledger, "lines": dict(course.lines)}
                for course in self.courses
            ],
            "faults": self.faults.as_json(),
        }


def report(spark: SparkSession, folder: Path | str, *, max_witnesses: int = MAX_WITNESSES_DEFAULT) -> Reported:
    """All that a report tells about the histories below ``folder``, or in the data set there.

    ``max_witnesses`` bounds the broken clauses for each invariant. Raises as :func:`~spark_analysis.jobs.inputs.histories_of`
    does.
    """
    verdict = verify(spark, folder, max_witnesses=max_witnesses)
    lacs = analyze_lacs(spark, folder, max_ledgers=max(max_witnesses, COURSES_MAX))
    broken = [(found.history, found.ledger) for found in verdict.violations]
    narrow = [(found.history, found.ledger) for found in lacs.ledgers]
    wanted = list(dict.fromkeys((*broken, *narrow)))[:COURSES_MAX]
    return Reported(str(folder), verdict, lacs, lac_courses(spark, folder, wanted), analyse(spark, folder))

"""What is wrong with a plan."""

from __future__ import annotations

__all__ = ["PlanError", "PlanSyntaxError"]


class PlanError(ValueError):
    """A plan that cannot be played: a value out of its bounds, or a name that nothing in the plan has.

    ``about`` is the part of the plan that is wrong, where the whole plan was looked at.
    """

    def __init__(self, message: str, about: object = None) -> None:
        super().__init__(message)
        self.about = about


class PlanSyntaxError(PlanError):
    """A text that is no plan. The message is ``file:line: what was expected, what was found``."""

    def __init__(self, file: str, line: int, problem: str) -> None:
        super().__init__(f"{file}:{line}: {problem}")
        self.file = file
        self.line = line
        self.problem = problem

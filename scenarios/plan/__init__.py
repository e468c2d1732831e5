"""Scenarios as values: plans, with their text."""

from scenarios.plan.errors import PlanError, PlanSyntaxError
from scenarios.plan.model import Plan
from scenarios.plan.text import parse_plan, print_plan

__all__ = ["Plan", "PlanError", "PlanSyntaxError", "parse_plan", "print_plan"]

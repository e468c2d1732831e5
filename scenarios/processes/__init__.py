"""Playing plans with processes: clients, bookies and a metadata service over TCP, in real time."""

from scenarios.processes.runner import run_plan_with_processes
from scenarios.processes.served import BookieMaker, ServedBookie
from scenarios.processes.suitable import UnsuitablePlanError, problems_of

__all__ = ["BookieMaker", "ServedBookie", "UnsuitablePlanError", "problems_of", "run_plan_with_processes"]

"""What a sweep keeps in a file, so that another one goes on where it was ended.

Results are added up in the order of the runs, so what is finished is always the first so many of them: a number, and what these
came to. A sweep of more seeds of the same kind goes on from there. The file says which sweep it belongs to, and is not used for
another one, nor by another version of the package.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from bkclient import __version__
from scenarios.model import TransportKind
from scenarios.plan import Plan, print_plan
from scenarios.plan.schedule import PlanSchedule, schedule_word

__all__ = ["SweepState", "SweepStateError"]

_FORMAT: Final = 1
#: What is kept at the least in this time; a process that is killed loses no more.
_KEEP_EVERY_S: Final = 2.0


class SweepStateError(ValueError):
    """The file belongs to another sweep or holds none; the message says so."""


class SweepState:
    """The file of a sweep; ``finished`` is what its runs came to, as :meth:`~scenarios.sweep.SweepResult.as_state` tells it."""

    def __init__(self, path: Path, sweep: Mapping[str, Any], finished: Mapping[str, Any]) -> None:
        self._path = path
        self._sweep = dict(sweep)
        self._kept_at = time.monotonic()
        self.finished = dict(finished)

    @staticmethod
    def first_seed_of(path: Path) -> int | None:
        """The first seed of the sweep that the file belongs to; None if there is no file.

        :class:`SweepStateError` for a file that holds something else, ``OSError`` for one that cannot be read.
        """
        read = _read(path)
        return None if read is None else int(read["sweep"]["first_seed"])

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        first_seed: int,
        scenarios: Sequence[str],
        mutant: str | None = None,
        transport: TransportKind = TransportKind.OBJECTS,
        schedule: PlanSchedule | None = None,
        in_turn: bool = False,
        plans: Mapping[str, Plan] | None = None,
    ) -> Self:
        """The state in ``path``, or a new one if there is no such file.

        :class:`SweepStateError` if it is that of a sweep with other arguments, ``OSError`` if it cannot be read.
        """
        sweep = {
            "first_seed": first_seed,
            "scenarios": list(scenarios),
            "mutant": mutant or "",
            "transport": transport.value,
            "schedule": schedule_word(schedule),
            "in_turn": in_turn,
            "plans": {name: _digest(plan) for name, plan in (plans or {}).items()},
            "package_version": __version__,
        }
        read = _read(path)
        if read is None:
            return cls(path, sweep, {})
        differs = [name for name in sweep if read["sweep"].get(name) != sweep[name]]
        if differs:
            raise SweepStateError(
                f"{path} belongs to another sweep, which differs in {', '.join(differs)}; name another file"
            )
        return cls(path, sweep, read["finished"])

    def keep(self, finished: Mapping[str, Any], *, now: bool = False) -> None:
        """Write what is finished, unless that was done just before and need not be ``now``; ``OSError`` if it cannot be."""
        if not now and time.monotonic() - self._kept_at < _KEEP_EVERY_S:
            return
        self.finished = dict(finished)
        text = json.dumps({"format": _FORMAT, "sweep": self._sweep, "finished": self.finished})
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self._path)
        self._kept_at = time.monotonic()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise SweepStateError(f"{path} holds no state of a sweep") from None
    try:
        read = dict(json.loads(text))
        is_one = read["format"] == _FORMAT and "first_seed" in read["sweep"] and "runs" in read["finished"]
    except (ValueError, KeyError, TypeError):
        read, is_one = {}, False
    if not is_one:
        raise SweepStateError(f"{path} holds no state of a sweep")
    return read


def _digest(plan: Plan) -> str:
    return hashlib.sha256(print_plan(plan, full=True).encode()).hexdigest()

"""What clients of swarms do with logs: one log, and owners, readers, cursors, a group of consumers, and cleaners of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from scenarios.plan import log_operations as log_ops
from scenarios.plan import operations as ops
from scenarios.plan.triggers import Trigger

__all__ = ["log_programs"]

_LOG: Final = "l"
#: Whether a log comes to an end is up to others, so nobody waits for it longer than this.
_LIMIT_S: Final = 20.0

Calls = tuple[ops.Call, ...]


def log_programs(rng: Random, moment: Callable[[], Trigger]) -> dict[str, Calls]:
    """The programs by the names of their clients; ``moment`` draws when one begins."""
    programs: dict[str, Calls] = {}
    for index in range(rng.choice((1, 2, 2, 3))):
        programs[f"owner-{index}"] = _owning(rng, moment if index else None)
    for index in range(rng.choice((0, 1, 1, 2))):
        programs[f"log-reader-{index}"] = _reading(rng)
    for index in range(rng.choice((0, 0, 1, 2))):
        programs[f"consumer-{index}"] = _consuming(rng)
    if rng.random() < 0.4:
        programs["cleaner"] = _cleaning(rng, moment)
    return programs


def _owning(rng: Random, moment: Callable[[], Trigger] | None) -> Calls:
    calls: list[ops.Call] = []
    if moment is None:
        calls.append(ops.Call(log_ops.MakeLog(_LOG, rng.choice((1, 2, 4, 20)), rng.choice((60.0, 60.0, 0.3)))))
    else:
        calls.append(ops.Call(ops.Until(moment())))
    for _ in range(rng.choice((1, 1, 2))):
        calls.append(ops.Call(log_ops.OwnLog(_LOG, batch=rng.choice((1, 1, 3)), give_up_s=rng.choice((5.0, 60.0)))))
        calls += [_publishing(rng) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.6:
            calls.append(ops.Call(log_ops.ReleaseOwnLog(_LOG), limit_s=_LIMIT_S))
    return tuple(calls)


def _publishing(rng: Random) -> ops.Call:
    publish = log_ops.PublishMessages(
        _LOG,
        rng.randint(1, 12),
        window=rng.choice((1, 4)),
        pause_s=rng.choice((0.0, 0.01, 0.2)),
        keys=rng.choice((0, 3)),
        nowait=rng.random() < 0.2,
    )
    return ops.Call(publish, limit_s=_LIMIT_S)


def _reading(rng: Random) -> Calls:
    reading: list[ops.ClientOperation] = [
        log_ops.ReadWholeLog(_LOG),
        log_ops.TailLog(_LOG, rng.randint(1, 30)),
        log_ops.ConsumeLog(_LOG, rng.choice(("c", "d")), rng.randint(1, 20), pause_s=rng.choice((0.0, 0.05))),
    ]
    return tuple(ops.Call(operation, limit_s=_LIMIT_S) for operation in rng.choices(reading, k=rng.randint(1, 2)))


def _consuming(rng: Random) -> Calls:
    joining = log_ops.JoinGroup(_LOG, "g", rng.randint(5, 40), pause_s=rng.choice((0.0, 0.05)), failover=True)
    return (ops.Call(joining, limit_s=_LIMIT_S),)


def _cleaning(rng: Random, moment: Callable[[], Trigger]) -> Calls:
    cleaning = rng.choice((log_ops.TrimLog(_LOG), log_ops.CompactLog(_LOG)))
    return (ops.Call(ops.Until(moment())), ops.Call(cleaning, limit_s=_LIMIT_S))

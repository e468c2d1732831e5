"""The reference model notices whatever a list with a fence could not have shown."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.machines.broken import BrokenClause
from scenarios.machines.model import LedgerModel


def ledger(acknowledged: int = 2) -> LedgerModel:
    """Three entries of growing size, so many of them acknowledged."""
    model = LedgerModel()
    for entry_id in range(3):
        model.append(b"x" * (entry_id + 1))
    for entry_id in range(acknowledged):
        model.acknowledge(entry_id)
    return model


def test_an_honest_life_breaks_nothing() -> None:
    model = ledger()
    model.sees_lac(1)
    model.reads(1, b"xx")
    model.fail(2)
    model.ends(2, 6)
    model.ends(2, None)
    model.sees_lac(2)
    model.reads(2, b"xxx")
    model.is_held(2, [b"xxx", b"", b"xxx"], 2)

    assert (model.acknowledged, model.end) == (1, (2, 6))


def test_an_acknowledgement_may_arrive_after_the_end_was_fixed_above_it() -> None:
    model = ledger()
    model.ends(2, 6)
    model.acknowledge(2)

    assert model.acknowledged == 2


#: What breaks which clause, as calls of the model.
BREACHES: tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...] = (
    ("A1", (("ends", 1, 3), ("acknowledge", 2))),
    ("A1", (("ends", 0, 1),)),
    ("A3", (("acknowledge", 1),)),
    ("A5", (("is_held", 1, [b"xx", b"?"], 2),)),
    ("A6", (("fail", 2), ("acknowledge", 2))),
    ("A6", (("fail", 1),)),
    ("A8", (("reads", 1, b"yy"),)),
    ("A9", (("reads", 1, None),)),
    ("B3", (("ends", 1, 3), ("ends", 2, 6))),
    ("B4", (("ends", 3, None),)),
    ("B4", (("ends", 1, 3), ("is_held", 1, [b"xx", b"?"], 2))),
    ("B6", (("ends", 1, 2),)),
    ("D6", (("sees_lac", 2),)),
    ("D6", (("ends", 1, 3), ("sees_lac", 2))),
)


def test_there_is_a_breach_for_every_clause_of_the_model() -> None:
    assert tuple(dict.fromkeys(clause for clause, _ in BREACHES)) == LedgerModel.clauses


@pytest.mark.parametrize(("clause", "calls"), BREACHES)
def test_every_breach_is_noticed(clause: str, calls: tuple[tuple[Any, ...], ...]) -> None:
    model = ledger()
    for name, *arguments in calls[:-1]:
        getattr(model, name)(*arguments)

    with pytest.raises(BrokenClause) as caught:
        getattr(model, calls[-1][0])(*calls[-1][1:])
    assert caught.value.clause == clause

"""The reference model notices whatever a list with a fence could not have shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bkclient.protocol.stateful.model import PROMISES, Broken, Ledger


def ledger(acknowledged: int = 2) -> Ledger:
    """Three entries of growing size, so many of them acknowledged."""
    model = Ledger()
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


#: What breaks which promise, as calls of the model.
BREACHES: tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...] = (
    ("order", (("acknowledge", 1),)),
    ("order", (("fail", 2), ("acknowledge", 2))),
    ("order", (("fail", 1),)),
    ("fence", (("ends", 1, 3), ("acknowledge", 2))),
    ("kept", (("ends", 0, 1),)),
    ("one end", (("ends", 1, 3), ("ends", 2, 6))),
    ("length", (("ends", 1, 2),)),
    ("content", (("ends", 3, None),)),
    ("content", (("reads", 1, b"yy"),)),
    ("LAC", (("sees_lac", 2),)),
    ("LAC", (("ends", 1, 3), ("sees_lac", 2))),
    ("stable", (("reads", 1, None),)),
    ("stable", (("is_held", 1, [b"xx", b"?"], 2),)),
)


def test_there_is_a_breach_for_every_promise() -> None:
    assert tuple(dict.fromkeys(promise for promise, _ in BREACHES)) == PROMISES


@pytest.mark.parametrize(("promise", "calls"), BREACHES)
def test_every_breach_is_noticed(promise: str, calls: tuple[tuple[Any, ...], ...]) -> None:
    model = ledger()
    for name, *arguments in calls[:-1]:
        getattr(model, name)(*arguments)

    with pytest.raises(Broken) as caught:
        getattr(model, calls[-1][0])(*calls[-1][1:])
    assert caught.value.promise == promise

"""Replacing failed bookies in an ensemble, remembering which ones failed, and saying why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from bkclient.errors import BookKeeperError, Code, error_for
from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.value import NOTHING, Value, own

__all__ = ["BookieMemory", "ReplaceBookie", "error_because_of", "replace_failed"]

ReplaceBookie = Callable[[Ensemble, int, frozenset[BookieId]], BookieId | None]
"""``(ensemble, position, excluded)``: a bookie for ``position``, in neither of the other two; None if there is none."""

#: Failures that more bookies do not mend, those first that say most.
_TELLING: Final = (Code.SECURITY, Code.UNAUTHORIZED, Code.PROTOCOL_VERSION, Code.WRITE_ON_READ_ONLY_BOOKIE)


def error_because_of(
    codes: Mapping[BookieId, int], bookies: Iterable[BookieId], code: Code, why: str, *, ledger_id: int
) -> BookKeeperError:
    """The error ``code``, which came about because ``bookies`` failed, each by its code in ``codes``.

    The message says by what each of them failed. The most telling of these failures is the cause; if all are, the advice
    is theirs. A bookie that was fenced makes it LEDGER_FENCED: the ledger is another client's, whatever else is missing (W-17).
    """
    failures = [error_for(codes[b], ledger_id=ledger_id, bookie_id=b) for b in sorted(set(bookies)) if b in codes]
    if not failures:
        return error_for(code, why, ledger_id=ledger_id)
    fenced = [failure for failure in failures if failure.code == Code.LEDGER_FENCED]
    if fenced:
        why = f"another client has taken over the ledger; {why}"
        return error_for(Code.LEDGER_FENCED, why, ledger_id=ledger_id, bookie_id=fenced[0].bookie_id)
    by_code = {failure.code: failure for failure in reversed(failures)}
    telling = [by_code[of] for of in _TELLING if of in by_code]
    advice = None
    if telling and len(telling) == len(by_code):
        advice = " ".join(failure.advice for failure in telling)
    reasons = "; ".join(f"{failure.bookie_id}: {failure.message}" for failure in failures)
    error = error_for(code, f"{why} ({reasons})", ledger_id=ledger_id, advice=advice)
    error.__cause__ = telling[0] if telling else failures[0]
    return error


def replace_failed(
    ledger_id: int,
    ensemble: Ensemble,
    failures: Mapping[int, BookieId],
    choose: ReplaceBookie,
    *,
    failed_before: Collection[BookieId] = (),
    last_resort: Collection[BookieId] = (),
    policy: str = "placement policy",
    codes: Mapping[BookieId, int] | None = None,
) -> Ensemble:
    """The ensemble with a replacement for every failed bookie that still is where it failed (W-31).

    The other positions keep their bookies and their order. Replacements are never failed bookies of this change, nor
    of ``failed_before``, nor members of the ensemble being built (PL-4); those of ``last_resort`` only if there is
    no others. Raises :class:`~bkclient.errors.NotEnoughBookies` if not a single one could be replaced, which tells by
    ``codes`` why they had to be; otherwise a partial result is accepted. ``policy`` names the policy behind ``choose``: an offer
    that breaks these rules raises :class:`~bkclient.errors.UnexpectedCondition`.
    """
    excluded = frozenset(failures.values()).union(failed_before)
    preferred = excluded.union(last_resort)
    members = list(ensemble)
    has_replaced = has_shortage = False
    for position, bookie_id in sorted(failures.items()):
        if members[position] != bookie_id:
            continue
        forbidden = preferred
        candidate = choose(tuple(members), position, forbidden)
        if candidate is None and preferred != excluded:
            forbidden = excluded
            candidate = choose(tuple(members), position, forbidden)
        if candidate is None:
            has_shortage = True
            continue
        if candidate in forbidden or candidate in members:
            what = "a bookie that failed" if candidate in forbidden else "a member of the ensemble"
            raise error_for(
                Code.UNEXPECTED_CONDITION,
                f"{policy} offered {what} in place of {bookie_id}; correct the policy",
                ledger_id=ledger_id,
                bookie_id=candidate,
            )
        members[position] = candidate
        has_replaced = True
    if has_shortage and not has_replaced:
        failed = ", ".join(sorted(failures.values()))
        raise error_because_of(
            codes or {},
            [*failures.values(), *failed_before],
            Code.NOT_ENOUGH_BOOKIES,
            f"no writable bookie is left to replace {failed} in the ensemble {', '.join(ensemble)}",
            ledger_id=ledger_id,
        )
    return tuple(members)


class BookieMemory(Value):
    """Which bookies failed one writer, so that each of its ensemble changes makes progress.

    A bookie may be registered and dead. A writer without memory would go back and forth between two of them for as long
    as it lives, each change costing it a timeout and the metadata a fragment. So a bookie that failed is offered a place
    again only when no other is left, for it may have been restarted since. And one that was given a place and
    failed without a single acknowledgement has to wait until the ledger has twice as many entries as then. A dead bookie
    thus costs a ledger as many changes as the number of its entries has binary digits, and one that came back is not
    shut out for ever.

    There is no time in it: how long a bookie is to be avoided by all writers of a client is up to its
    quarantine, while this memory is about one ledger and ends with it.
    """

    __slots__ = ("_failed", "unproven")

    def __init__(self) -> None:
        #: Bookies that have acknowledged nothing since they were given their place, or since they failed there.
        self.unproven: dict[BookieId, None] = NOTHING
        #: How many entries the ledger must have before a bookie is offered a place again.
        self._failed: dict[BookieId, int] = NOTHING

    def last_resort(self, entries: int) -> list[BookieId]:
        """Bookies that failed and may be tried again in a ledger of so many ``entries``, if no other is left."""
        return [bookie_id for bookie_id, needed in self._failed.items() if needed <= entries]

    def useless(self, entries: int) -> list[BookieId]:
        """Bookies that failed from the start, and too few ``entries`` ago."""
        return [bookie_id for bookie_id, needed in self._failed.items() if needed > entries]

    def note_failed(self, bookies: Iterable[BookieId], entries: int) -> None:
        """These failed at their places, when the ledger had so many ``entries``."""
        self._failed = own(self._failed)
        for bookie_id in bookies:
            self._failed.setdefault(bookie_id, max(1, 2 * entries) if bookie_id in self.unproven else 0)

    def note_change(self, before: Ensemble, after: Ensemble, unreplaced: Iterable[BookieId]) -> None:
        """The ensemble changed; ``unreplaced`` failed and are members still."""
        self._failed, self.unproven = own(self._failed), own(self.unproven)
        for bookie_id in after:
            if bookie_id not in before:
                self._failed.pop(bookie_id, None)
                self.unproven[bookie_id] = None
        self.unproven.update(dict.fromkeys(unreplaced))
        for bookie_id in [bookie_id for bookie_id in self.unproven if bookie_id not in after]:
            del self.unproven[bookie_id]
